#!/usr/bin/env bash
# 16 ranks on 2 x p5.48xlarge. job.json says why each value is what it is.
set -euo pipefail
name=${RDMA_IMAGES_RUN:-efa-nccl-tests-p5-48xlarge-2}  # of the containers
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

# mpirun of the first machine's container starts the ranks in the others' over ssh, with a key made for this job alone.
key=$(mktemp -d)
trap 'end; rm -rf "$key"' EXIT
ssh-keygen -q -t ed25519 -N '' -f "$key/id"
public=$(cat "$key/id.pub")
serve='mkdir -p -m 700 /root/.ssh
echo "$1" > /root/.ssh/authorized_keys
set -eu
# The node first: devices, limits, GIDs, neighbours. `invoke job --no-check` leaves it out.
(PATH=$PATH:/opt/venv/bin:/usr/local/bin:/opt/conda/bin
if command -v python3 >/dev/null; then
  python3 -c "exec(__import__('"'"'zlib'"'"').decompress(__import__('"'"'base64'"'"').b64decode('"'"'eNrFPWtz2ziS3/0reFOVJZnItOQ8dqKNpsqxlYxubMdle+Z2StGyKBGyOaZILUk58c3mv18/ABAgKdmZLzd1G1Mk0Gg0Gv0GblnkKycMl5tqU4gwdJLVOi8qJ8qyvIqqJM/KPfWquFlHRSnq30X0oH4sqoe10E2Xi6xK1Y+bNJ+r52QdxXEhSt3yjzLP1HOu3xaifirzTbHQv0uRikWlf+WLO1H/qoqN8W0zXxf5whirfNCPVbISe0ucOuCdZDdq2te/X4zD45/Hx79Mzj/2nKMMJri03w73HPiP+i7yFLFBIgXRfKGATCpRRFVe9Jwr8e+NyAB77PIhyWIcauRUm3UqpoBuz1H/zKjJxyTWn5Os6tX0CiYX92+O+NnoMMlgrGW0EC2o/P1DtKhK+BYni4o/wZT402WUpLtw+U0UJcysgY/8Z7Z3dnT5C3xzi3gV7Ser6EaU+1kei/3FrVjcuXsXny6v4fvh21dv3+5dHF1PxufHY3jxph/09y7HR8c/w4/X+Hw0Ob0K1ZtDeDO5OA5PPx0j+MGrvauzo9PT8OrnM/zpvHvnvOzvHR1fhcdHF0fvJ6eT6997zvvLyclHhO4NXvacwetXfR/GOJlcjo+vr+D1K+c/zo97F5ef/vl7iIjhuz/dl0dv37o9B/+O3W97p5Or6/E5fnL7R+7e5PxqckIw3TTHZjEyW4FP90kx5wdR3eLfRZbgn3Ue7yfxfppkd/hzmcIuEik1iNLE9ff2YrF0lklRViE0Et46qm6HSHLf2f8J/zJzVcUDP+B/X5Lq1snXIqPWPQf4KUc+Grmbarn/I0AXRZEX5cgtxDoFVnB9JyphlFTUQPC/QsAWz+hDUIgoJgz8AEZN1p5PTcXXhVhXzqerMYKsu8uurru3t0ijsnROxH2yAPjUAicVhkmWVGHowQZd9pwiz6shM5Q9x/M8M9DCxkEWrZB98zLApsE8KgW+oun6dtO4SO5F0dVYvYCJpfhAvZ0XjnsQE6oH3NX1GxDXguA11sTsuD5cu41OJUhGsaUXSoDyYHBAbZodgV1EkYnqkb7IQGEaPSC+zgj4cSz7uTa4myTGzZ0mZeXBc1hF87QNzpwzkGCOXaYtAooMuM53lnnh0CPscpLcAf7TIkqSLWG951EWhwTyYEN/nrv+rLG4IBJgPOQH1d/ofODCS+o57c8ckLSMn0hLgcymICVKyiHqJcxKxN6fBgGfiLsiL5IqqqqiPMgAnfIAsP7m7INAcL811isxxGuNhMTVwKqJMHVeVRt7nTURQBEd0D46gDUlGjRGw0bQHVYfxml86xxrU+LSw3DzPE89TXmQBFmMmyVaoCKsP/Tw5WX46RcQjPD0P/AkpZPBR0CueuMqpTYFHTWTOhDoDTpNfEV6F1F2I7zD12/8entX4muD1d1nJZK/PHgWu84zh8boMRCDS2HSYH1Q9y4Rpl9J3YiL06UnPQRgQQUqerKhb0N+SEQaOx5h0lOAex2oS84hc6dzFpKOKGFD3i2lp8UhkRL365QlqKSklK/yJTVnwclMTRwMNJasX7N2B0cZmwv4GrYj65xoXiQLjY/8O7RQ6clWuxBNFChEx3PFMkLtJtAIcP2WvpjyODQH+Qjd5OAIix+1WB9J4LO9vw4EGacDN0kHMk6+gww9sPE2GawdcI69DaQ1J+myAGM4AYPJGW0htYLK7Ki3a/fkNLR6dtxjtmdsD9WqJrtkYpcMAjJZeHB8BA3i3KESSZ1bMA+y3HlWSuAwOzASJf2SkoCneRSLGMRE4WDPJAN9Boas7JsJ4nvJCtDGvTw5O1KKRqQSQ0a6xg8VDZII8Qn+yJPMk+RhG6CbCNPhq5khG3bNEWYUFQIRLkDCoehr6BuNvpMvsdnKwaZDsJfuaHScqoIHEyR8jTkRLxDcFMwxnp3vvJPv953B05biWYzDw79RHK0rXOdFlDlzAfQSMWFE1DXGkGwoyRDnX7Kad7poJ/mrZh+2WBBz9+j4evLb2FUbxWyg2QtH2DEXUqSKqdivY64BbwOYaAishTOolxnhSeRzXJ1yN/rtzS0nhBOQzST6iktmDfGEVhNKAOpi9Obh23P7EhUZbGd7pX4AhoKZwTANPuo5VZ4zh+HS3SZg5Iw/HA2d+YMTObd5WV2gyIZVbnX8cpssbhFqleOSp2IJju+mop0GoACKmuE63dwkyBdAHOH0g9fBoK/6EzuUzvlvp+hrAAPlYPegNwqkBRYHKD/AAvBkwVyROilbLFK019Cv80icKSfvP4Zhbmqc6XNvmacxyAXUMtl9EifRAYIBG3WO/8PnoMyDQ5f6ycaoqx7YwgTeda12M0MebFZzMr85ehAsQlTQ9V63/CASs9zu+OT0lN2DAOF+FJWchycbzB8KsfQYvCE7pHvjSf8GnGHQ5cl8Uwn63TAJkKZJthH65Sr6AzuBZVCRS32/ymM5SHAfpRuQOYM+/EcC2njt/DSSH8h2w0e/qSo9E/jBATaSP57hs29qRFwqU52hQbVNl5FRIlUZ0mrYWPIR/rNLs8Ew0SbFCWN3tdGxF7E/vXzneIc953DQc/pscXq8O9Ee0izV2t7Dpr3nbdvs2m96bIUkoCh78Dz3HngSRrsDPGqkgFZBUobsYeXglrOFFfbwS48b11IRKet3W4q1NMRGUvtIzfpxcoJ7/zI/Hjv3hw4wmIMD7tOADpCuZJVbG/Wyo7Q7UXga0tEyYQsRLDdpuoqqxa3nfv4cv3CV6dkgDoghQXoCEKRJMk/KmYaNadZMi7IT9yEDnVlAlelBsO3xdtLm/Pj4NJy8D4Ey4eT8ZPzP0bOS5WdNtXIDgg0akPKThrhJBd8ajhUy4QECzl7T7YgZYn4XasjmkblmckVZr+1GrgBpLjCMN5XkbJG+g8mQsC2GJV5d378KV9F6LeKZyQZqW2I7OSLxeF8pRn65hXe3kEHpmsPgcOBU0R2oYJx4n6du6C4cgwcYOh30Y6/IIE9PtkZV5JuiayVWefHgGeGiTjm2S0ClySpB8aQixcGNqAp66elXl6eTs8l1eDY+w7iiD2hQVzR6NiX1DUoRFbij/nUcrcfL5fDz5/K59/nzlxe+2yNnrna2MKx8gK70AQNwfWwRnP16ej05nZyPmRdW0QNy4x2GLHicpuzETcafghugz9obAKDBG9/5CSarYqB/cwbaKpNmERmgNOv/MqaNc4QF+DA5n1z/Xgs8hYa/w56DVcAm+Ih/gZd4XRBjGgjegLkCFusvyfuhs7+/4eFlv9H+YLg/IAtGoc0GLDUiZXb4Su4QS6Xj5DmYh0/3y9Kz4kTl7cp9SlxS0QeBBMtwjjiVznP1ewn67n8FKCkdSd5p/uGovRoDkk4w8zOcOW0S0ktRFbGPBAZXJpBiuTTbd2MBS3vYt/fA7eZGhGsMoJv7oOmLb+H+ZSFEg4F/BngXCC78AB8VI8fbGBkWEezTvJuJtxjUNKqh6CsP32gu9v2dFMYJ03zxBwh+/O3gC+Q3BDRE63FRpc79KsiKULdX8gndjj/yuWuR8Wa9sQj4NMcdewH9OkIquP5s8E77+29nz11NEXTMsJ92/XZsLWxn+XwfL35lLxVkNM4DbZgoyUShfT4CbXt8Uu0SsrDLaJZdmyDKyi9kUBebzHMZ+/1yRcmJ/f1/b0TxsA9ARqzAxGIRcO4g2GSLvCjEAnZ6cJ+nUYVJgiqvopS7AtnB4hgtyvtelt8K5PuaHnJUWDw7um8gtqCYo4wHcnvVGz89gYD1ZJR7SeE9lb4IynWaVBioK8GzARpNXfEVpA9Cd1gh4ePMn+4PZoz5PCItXeRfuLPn9lxUDaSw4S2tEA1hgu40wXrO8+kAmASen+MuQ5CMl2+HbBAb3Dcw9s4tomZtrIuSybxiYEUiK7U8bQAseQatl7KbFbJ7laLa31cqTDM3daNIQZKxP09WCb2fDmZBmsPiebt3eD0AuLTspLIjrQIENT4Ot3UMTGhTg9gNMesVclyqEULFMLcVOnU/QVvnFw5wneXxJmW0u8LvJPYYrHJppVPckihxgsR/1D7p0daU7zCD+hedLeUI0UaPyAx88BpuUacvZYlcY99heqs08y8YKOYw4MFqdcAsFVIrzihw3M/IsCUl0MAONK+IvJJ01BnguLTrntKLeoTURTMdjyqTFQYEwszwKY2sDs2MoxIY6N7JjwpHLUcU1mTh1IOTXStuYBVFgbYtfgJPzYmW8ILENcY5ZahUbRrk1HgVhfPNEujWxbeWEPfkeEAto+fT8RcJOsNOYx4Zho9UDJdSxpiXB8BDFBMnxMaMPMw4Xy47aU8kNpGqXXz+bDj7L3sO2HSPrQwu8/N6dz15lg1v5GXwyolzwfZzCbZHY/ZfMGgKslCOqCztiqO73QQAscncpQgB7gJvdyzSGIKaWpQhmD6xMswewR6a45+L44lzdHzlKGAkqUHvS0g9DM89K1tILaMkJd0O2JUgYrU1YCBFFpr+ZfhSuGRpMi8icKXQ3eqSk5bhbcbR6gjDI9n/D1FaClPmXhcbOw4VF4t8bXlzLbGIqMp2Q8LuEXGoJaHRsWY6JSxA1ZdVw3uAxnFx/xjPSZAqmE2FLGTyfzy5PIYPRhqBASreYtYiASE/5GzQcXqV/fd7tlXXeWykFmwlAzY1sfH365hdlAOoW7NL2xJUZN77u4LuVC0xay0NDmaJj5b8YzkRpalWZlx3AT7F+ZHbwA/APUFQYHh+/OHI1YkrLR/Ax1ncEr3R1naV3eStD9ccyCBL9cgfUogDzJPJyQThINYqRcbKqsQgOqCDASbeJrRwTcHQSJji2jD6shGuxKwVWt+dzJ1vyoP1IpH1FlSj4A+bqeyuGhLKArMydvuujif8iLECLpN6JIbaCrrbBUg8SJ4tE1qKYr6t3Igc/DXXTuiaI+9V/+2bVkC+JXE6EQOhXVLpzOHrN3V11C2AxjfOu5FqAU8oOWlwWBbnRxswui8UlMFqQfB8oNldiPV8nvtuAnOifj0JTMeKDNITgL85b16/fvkaediuRmtTgUITHYP93BwMaPuGPJC/Obp6rQ3O4KwAA4NZ7HXXTvl77W4iurPeLvMUtA2XJdK8KEBhNdF0r9tiWED/+Em1oOxG39QQEk3eNnW9jFdvFl3AKLcMMRuXdQb8x5O/jj6Ek/PxdU99vfp0/Et48vHy6IwYEIz6uel75vkKXU2sUQ3oX899D/SeP1Qw/uDNyx9fmTFbrNOkrI5cKFwmz01OoQcpYYDmU1XbKgC7aAn2K8ZMPJ9yawoKpW8bjCWBUEFskOSLKvUI0wC3RAYQes7L1/23lOwhHHzNcRRjGvGgVc6IyzxQ/oUzqNBimg0z4JtX0m/N6locgIkYgZ3W9+2KCpjPl+lw8GYmHd+5+/lrv0/ObxALdFIRL0lnkC5VmFV5RL0O+8NDzMebTjKiI+srQKNXMP9oHerVxm5KbdWrDeBFhWaMEeHS2RAzG0kFUNyyFn9lCJIj3VCFAv0AvxIrNWVLDCcWVYm85Ln/wsiW+pCyW44vrUYjs0gONg9gklGxWUc/9TxyfSNwsKe7Ix0oNgDrtc0aa5hW5OZxHeRIDU9CXs2NthY2MLGWDXWNEPfKavwBgmrTSjhm4mvl4do0VxJ7KfRxxYHDUXcYNAd6kiPL+fwiRl9JRlK6gDEQi9zJXBUKqu4vtvfnZEMTxraqXP/pgDsQk9D8GWwpbGZuGwlRVv8p+LQyzYwsZTusYCQnzFo8vsuGU7u8DlDZu64dysVqQhrateNh08FwJiUAfiWocm0pWDUdyL9/p4xxRd/edOxyFf2EZ7AqnL/L9BMCQB5x+/I/tzZ3OP0DmH3Ji7secFZ5J5OPjItl1MicpYwkOrI7gtaZvkeMBDKJYH4rLC5qrTtNXq78YPhyhtvNs3DzgbnvxMMojVbzOMKGQ2r9cmZlYWkY5ARAjfb4Y2k2Xhbl2TLLOTnarSoRahRowUxjKhDBJLFETzUesltBNi5+xlog2YR8Rqa3ws/ONACTfLXcM/RVykdj5I8woreFE6vFGmzDF872z29gt1qMymxD5UVYoc+cFRRroFaCxyw8dwha6nD2CF++1HzJSywr+7/VYRiYNrQbUDse7qeRY5wP2O1+IBnR/5iUgJRLtsfXB5kwxfXlgpxMHg3hWjPgaXADQQ9Gc1hh6RWCr5+Awo2KIEFQYCAcJNkf0G/ouEt0t90frAXU6tXbJlCeuqatzbYjBK9VuU6Xo+01vg4nH86PzsaYL18Sp+ZGRUN1G1FZ2GaNbAkGqshAQOcZpme9DigIu1FAaC6SV6f6DXnNZzTI2akrgJN1KB9Vp8HMbxR9fM9swSZNU96yahM63jNM0XA+POd4HKEb57ULSjkHQkCVBGOMx9ue4KYXeCynse9mT6mh4RoBWe5hlg08Vt/yF0oPtkQH6sXHl9yzYe7AjJTPYtcHNEHQQSSPYZAcsyqgSDVrmoZIOJFhsAF+DelkEx+oMf0IVS3ATekggell+NbnAAw//JCvtf9x9UlxrOGChO8n5yfXn07Gv02Oxz3CBiUWndEBI7oBdJ7gvKnR4QyLpRrf+cGzpqo+6qpykARxyKwEsp+fhgbv9Cisab2nf/DgF/MZzG1qn+maKe8rStDc7alxcF34oBBa139+I0MafQM8PxescuD1PEsWHop54xxXXfSl6l68sOcYaxv6FOiBryicRD0RY2Nid9pa3FuX5KO4bnSvJ9wuEJNSeMt6txviylPuHujgUchzV8u/wCOaDA0u6RhAPoLh7Xn2/O0uctmmddcZrpciPlGRe3C4RLZns6O5ku/0mttrYdASo1d0DjPgP94UuI5OIUnIwCH4ahV99fpB3+Ci/dZ44O8OGkbdOkpwf0pYwToHdacH9zvr0Wqa3TxxUcaXl58u/XZ0RXJ+APT2EJHti5OCaPdqVrfpI5E3Qu7dPZVA41EtH+KxLa7O1z2y27cbAGgx1TsPTVl807mZjJSiFR+UeFMFSqdkMvF7ci2PJTlYM/RQhT1FbNBwqo/eNCFgWCMiK/MsraZ3i6wa1nV0PC+bUUCnV3iuF88y4DEKO/T8rJRxZrIWro8vAJFKFS0o1Cw88YfG1n/Ul8A5YOxQYuHvOiO1yeo1mhokIKEwU+UObMPo0FGDD3yLQCxOGvSxaFmPKTO6bdvv+PLT1VV4Pjl2ffYc3eFTp40UZ/hlTWqVvUUHiRpSjU2EngMpLcceddR/bDH0HNiL6qCwPAr7a4YleOm9iM/BkiGmVgXmki3X0Ey1PhOC5cK2k7NLPLE95IPbmiVa7hqaGtmdfAS/tdLiwBAY6vQ5C40RyNotJ3CXPJg+HaiecQz5yGOgVpGNZTtuwl8bhyfbptYCSFqJsBQFZoZqldZvnsqlMaauKoeeUSTOAKmkPMW6G32l2LHaoxlNSmpqvZ51D8uMNqtNbyWT8APyfE1jiy9amZMWKbTx2zZbm+XNOzIjnYEPe/7mOH67jT1RbZGTZYoxoec21lgzZZPc92sGXrJe4dOlu1ROJ410yRqfrEbW8Opjr8he6MHLoxP0LirvvFYKqWMXYlZAtKlnO3zk/Vyd/np5Fv73p/chVp/jAmuRJY/bmrVNeCjMZf+EYPg75W/rzMlveCSExcMjGJqDiuTmdp5vClkziSbPCoQbiFjKmGA8wfBDVYkc47cLPWRrrc2STC7H1I0TzHLg29KdPYqe2bpLL7GPV5uwWrXoasBpPUV3tp1bbEFS21Qe+TP6bG/PYT/EMrXa2+pJHGJSX2qfxND2qOQqCuKRtueQgBHk09WKFg1olzW5h8flm0UME9CUagzENKn0NuSto/cgKRDDLIJRBdbD0k0gpDbkzR+mV6SDSNR7hiLwz/7Q8fhlLTr8b0a2QzuIHU6huvjDvs2iWx24QF0MvlGZy6YUIXo6I3LBes48Wtyl+c2ISslx3bhXI1NN3g0ZLzxd9GZqrdYlnBFIQFmelcg3lSddlsEjPksLUqfsb7ugPB6exgf/pJVbforgp1hPUpacspVFBOiVs+VWzxa1PbnrihZ+JyxgIxBwcjjP5SJlDmahZZvE0sFakXiAb8zNpq0g0ZkOfwSmViuOyQPkZEqNbCeKSXsjdmDNFvYLVuWM6LKgAEtuSsMhBNPkTmA21fONa03aYCQZphIcar/sziUeN6D11HA1AEO44VFFlrvelDaCCq7xD8y98Sh88A8j2jUcFnQU2P7WMCvQhvLY7mQfR4FJKrEqvYabqsUROjVyVh5pyhfOwIfVqRdnBs51h7otp9ictrch3IaYC5E/QB5DfxcLWetX2h6z3korwm/ogaFFOEy62Lp8OvvWdOXJq20vnKAtmsVYP0QsEG9W69KzpuLraAoQYe5+zly/G1BTI+gMLAODHaklKhoa2+Tp94o9kkxYMPcEk7EratXWeJ5hl2vBuWULtes+nqQI5bK0JvhTR4io0Scp1ZUBbCTp0MtNlIiOw7ZtkdTlV1GNHqUE+fy+TPdxyR3qYK2ZuSdV6VGwfojZCeJAiuavwA2rAdQSTZGTUMQafqmjd8iyDiFqY9ZpLmizoD3sztFoLcpUiDWoqde+rVdr7hjuPS5u9aVcL7rYxurT2ntoRXim74ikHWmT3X9sO8pd9x0CnQrask2acm0biNDa8qmih3qj2v4tbzxKUT5gUa8dt7TdHA5a4v8Ogz6V9gwbtVJFnT+QGfiO7audVEPNa7HDAT6pQ6StTgE7tri6qgiVOd3IBdE2qOsI/9T3KDDPZVKJm03xDd90RMIdi5alRKfwCp/YYHH+zZj7/CEkdTY0rpHTOM7a+sxCwKaPAoV8KI+weuhIYVOKDvFhWlwFX7ml+E2pIysJj4aeAohCaWCPVVemSBLpwaVWtTL9+G7o7CNMfMScYZNlqbDA/Ye+uwRdASzu5o0sbwCoj+KQo8i3lxBZZAO+BCWp60kG9gUn1pIrGlCUkdQpSQ5ZU04E/oftYNRVKuRjUIy3fjWY+XytgJ1P0+PJeyIAbkgb+wlVybrE6bEzL4YG1fe4GecWP38u6Zji588B/pniv7PnPrx2e999jMeanWT3ofSeKAAJv9xncUD/R1e90OUGfEWGumILm1JxsMQXTRp60AcdKR3Kc6n70BUeqsO267/kaRjYAjXSPb5GR99AAyj2JC+pTW7fdfS0W1O+4X5y5WF00JsycdsYCndhuVk99bQRQDy7/nUHinj72XfhZ58mYoS+/xCSTxn8WHwVpXEFQxeeCJ+vONiCp77ebHfuvJ0OfyybDhP+Vl8S9v97CeTTL34kfDeZ9xy01wpmVaNs5JJRI1jlm9Ys4pwM5vpm1gABSnjYOQa7ZGR8vphcjOk9zM58f3V98unXa05DY5fDvjWNDzC787z6kG+yuHtC2rZqheeMUa4Z+vjrOgHx2RWtU5e3DNrhQPUJ5xzwDz4ESy94qqrYVi9ivXrSUqBqlVBHWA1pnK+puGior+UN0EyW5eRdgnj3JS/M8qP2tXX+Xz4mjTaveWWBp44wP3I6PCpi+CnMw24RnXXN+IokQ3Chac0HcfIsfXCUd1Cq6xXU/Yxf0A2gmJqIXb8r5diKvbWOx0iCB3x8pv6tLvHyu+HQ5TzbjtzYMP1ed67MvFyDy6R4hbeMaNypoZX2lqaNqwdaCG2ZkjppX7enZd3S2jgVxmeYerKkN6/0yS51eg2vioIO0Trhy6Lq8+82Zvo6guH26Kl1skpTglFQdWal2AHAPv/bgKCWoDaYODNiyXBVOdxYVeTgcHJ29HF8FZ5/OhmzS6McZFHhBWIytVUXBHg7dvzu6s2cLtmQ9MOfQSFL2A/kZiCrZ8RFt1Qem6uSc+vGsOYCd0gnzRImi+qriLqOB5jHQnrfWSjYWrJmgWTNoRwT7e5Vl2v3dMVeZ8O6gLYTsMGmdvWieiuzqHRvXOMKpUdFMHlX8jrvhoFusKbBieYKkD+kspY4BmUWniiWahArzl4DAJnHVtlgXWjZoEv9k4OcNiGMbHVnFkQOF2gOa2ESkO8vt8kqAvMONsdmBe5M66Rkou7poL1T0OEguY+OZJ8L+oIHdG5GeL+5b7THgqBQAffwSgwijttTVzGNXHdne6UnoAeevh2RvaT69nd2lbdBfG83WoHOfoOd/WQk4HuH4zV9OkGQc83WShhR3gxrD/FMNPnvXjMC2XOMyjxOYYKQSqoHlSEzU5osPSUS9AfRKGtOMU9WyjH/M9IgWdVQKtDIpuEpCWSRxo6z8UADaWgkRGFK6aa8HWEcWJJmGyAXzUQuR3aeBYOlTLu0QrH7ilx+G7jUPnRSlKbl4/8zg5DGCEOaVxjipglDqUfx0ka8NsWjrYS/gEj3eHzE9/8Pji+1Bg=='"'"')))" \
    --fabric=efa --adapters=32 --gpus=8
else
  echo "$(hostname): no python3, so the node was not checked" >&2
fi) || exit 1
mkdir -p /run/sshd /tmp/nccl
ssh-keygen -A
exec /usr/sbin/sshd -D -e -p 2222
'
for host in "${hosts[@]}"; do
  remote "$host" docker run --name="$name" --gpus=all --device=/dev/infiniband --ulimit=memlock=-1:-1 --cap-add=IPC_LOCK --shm-size=64g --network=host --detach \
    --env=NCCL_DEBUG=INFO \
    --env=NCCL_DEBUG_FILE=/tmp/nccl/%h.%p.log \
    --env='NCCL_SOCKET_IFNAME=^lo,docker,veth,eni,pod-id-link' \
    123456789012.dkr.ecr.us-west-2.amazonaws.com/team/image@sha256:5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e sh -c "$serve" serve "$public"
done
remote "${hosts[0]}" docker exec --interactive "$name" sh -c 'umask 077; cat > /root/.ssh/id_ed25519' < "$key/id"
addresses=$(for host in "${hosts[@]}"; do ssh -G "$host" | sed -n 's/^hostname //p'; done | paste -sd,)
start='set -u
/opt/amazon/openmpi/bin/mpirun --allow-run-as-root --tag-output -np 16 -N 8 --bind-to none \
  --mca pml ^cm,ucx --mca btl tcp,self --host "$1" \
  --mca plm_rsh_args "-p 2222 -o ConnectionAttempts=10" --mca btl_tcp_if_exclude lo,docker0 --mca oob_tcp_if_exclude lo,docker0 \
  -x NCCL_NET \
  -x FI_PROVIDER \
  -x NCCL_DEBUG \
  -x NCCL_DEBUG_FILE \
  -x NCCL_SOCKET_IFNAME \
  /opt/nccl-tests/bin/all_reduce_perf -b 8 -e 16G -f 2 -g 1 -c 1 -n 100 && status=0 || status=$?
/opt/amazon/openmpi/bin/mpirun --allow-run-as-root --tag-output -np 2 -N 1 --host "$1" \
  --mca plm_rsh_args "-p 2222 -o ConnectionAttempts=10" --mca btl_tcp_if_exclude lo,docker0 --mca oob_tcp_if_exclude lo,docker0 \
  sh -c '"'"'tail -v -n +1 /tmp/nccl/*.log'"'"'
exit "$status"
'
slots=$(echo "$addresses" | sed 's/,/:8,/g;s/$/:8/')
remote "${hosts[0]}" docker exec "$name" sh -c "$start" start "$slots"
