#!/usr/bin/env bash
# 16 ranks on 2 x ecs.ebmgn8v.48xlarge. job.json says why each value is what it is.
set -euo pipefail
name=${RDMA_IMAGES_RUN:-erdma-nccl-tests-ebmgn8v-48xlarge-2}  # of the containers
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
  python3 -c "exec(__import__('"'"'zlib'"'"').decompress(__import__('"'"'base64'"'"').b64decode('"'"'eNrFPf1z2zaWv/uv4HUmSzKVacn52EZbdcaxlVTX2PHYbm87ipZDiZDNmiK1JOXE183/fu8DAAGSkpz+cp3bmCKBh4eHh/cN3LLIV04YLjfVphBh6CSrdV5UTpRleRVVSZ6VB+pVcbuOilLUv4voUf1YVI9roZsuF1mVqh+3aT5Xz8k6iuNClLrlH2Weqedcvy1E/VTmm2Khf5ciFYtK/8oX96L+VRUb49tmvi7yhTFW+agfq2QlDpY4dcA7yW7VtG9+vxyHpz+PT3+ZXLzvOScZTHBpvx0eOPAf9V3kKWKDRAqi+UIBmVSiiKq86DnX4t8bkQH22OVdksU41MipNutUTAHdnqP+mVGT90msPydZ1avpFUwuH16f8LPRYZLBWMtoIVpQ+fu7aFGV8C1OFhV/ginxp6soSXfh8psoSphZAx/5z+zg/OTqF/jmFvEqOkxW0a0oD7M8FoeLO7G4dw8uP17dwPfjNy/fvDk4H49vgHTh9fj048XZNbx/3Q/6B/DjYnx6Y7x+BW+vTiYfro13x9jy5DKcXJ6GHz6e4qiDlwfnk4vw+ufz8O3vN2NsNXB+/NF50T84Ob0OofXJ28mHyc3vPefydBK+vZqcvR9DI2/woucMXr3s+9Tuanw2uQIEsP9L5z/ODweXVx//+XuIuOO7P90XJ2/euD0H/47drwc3p5fhh8n1zfgCp94/cQ8uPp6NEauTD+Hk4mZ89e7klNDx3DTHjjFyaIFPD0kx5wdR3eHfRZbgn3UeHybxYZpk9/hzmcLWEyk1iNLE9Q8OYrF0lklRViE0Et46qu6GuE6+c/gT/mWOrIpHfsD/PifVnZOvRUatew4wYY7MN3I31fLwB4AuiiIvypFbiHUK/OP6TlTCKKmogeB/hQC5kNGHoBBRTBj4AYyarD2fmoovC7GunI/XYwRZd5ddXffgYJFGZemciYdkAfCpBU4qDJMsqcLQg1297DlFnldD5kJ7jhd5ZqCFjYMsWiHP52WATYN5VAp8RdP17aZxkTyIoquxegETS/GBejvfO+5RTKgecVfXb0BcC4LXWBOz4/p47TY6lSBOxZZeKDbKo8ERtWl2BHYRRSaqPX2RgcI0ekR8nRGw51j2c21wt0mMEiFNysqD57CK5mkbnDlnIMEcu0xbBBQZcJ3vLPPCoUcQDSTuA/ynRZQkW8J6z6MsDgnk0Yb+PHf9WWNxQY7AeMgPqr/R+ciFl9Rz2p85IJ4ZP5GWAplNQUqUaETUS5iViL0/DQI+EXdFXiRVVFVFeZQBOuURYP3VOQQR4X5trFdiyOQaCYmrgVUTYeq8qjb2OmsigPY6on10BGtKNGiMho2gO6w+jNP41jnWpsSlh+HmeZ56mvIgCbIYN0u0QO1Zf+jhy6vw4y8gKuHpf+BJSieDj4Bc9cZVmnAKim0mFSfQGxSh+IL0LqLsVnjHr1779fauxJcGq7vPSiR/efQsdp1nDo3RYyAGl8KkwWSh7l0iTL+SChUXp0u5egjAggpU9GRD34b8mIg0djzCpKcA9zpQl5xDNlLnLCQdUcKGvFtKT4tDIiXu1ylLUElJKV/lS2rOgpOZmjgYaCxZv2btDo4yNhfwNWxH1jnRvEgWGh/5d2ih0pOtdiGaKFCIjueKZYTaTaDl4PotfTHlcWgO8hG6ycERFj9qsT6SwGcHfx0IMk4HbpIOZNF8Axl6YBhuMlg74Bx7G0gTUNJlARZ0AlaWM9pCagWV2VFv1+7JaWj17LjH7MDYHqpVTXbJxC4ZBGSy8OD4CBrEuUclkjp3YB5kufOslMBhdmBZSvolJQFP8ygWMYiJwsGeSQb6DKxf2TcTxPeSFaCNe3V2fqIUjUglhox0jR8qGiQR4hP8kSeZJ8nDNkA3EabDlzNDNuyaI8woKgQiXICEQ9HX0DcafSdfYrOVg02HYC/d0+g4VQUPJkj4GnMiXiC4KZhjPDvf+VG+P3QGT1uKZzEOD/9GcbSucJ0XUebMBdBLxIQRUdcYQ7KhJEOcf85q3umineSvmn3YYkHM3ZPTm8lvY1dtFLOBZi8cYcdcSJEqpmJnkLkGXBRgoiGwFs6gXmaEJ5HPcXXK3ei3N7ecEE5ANpPoKy6ZNcQTWk0oAaiL0ZuHb8/tc1RksJ3tlfoOGApmBsM0+KjnVHnOHIZLd5eAkTN+dzJ05o9O5NzlZXWJIhtWudXx812yuEOoVY5LnooleMubinYagAIoaobrdHObIF8AcYTTD14Fg77qT+xQOhe/fUBfAxgoB7sHXVggLbA4QPkOFoAnC+aK1EnZYpGivYbOoEfiTHmG/zEMc1PjTJ97yzyNQS6glskekjiJjhAM2Khz/B8+B2UeHLvUTzZGXfXIFibwrmu1mxnyYLOak/nNIYdgEaKCrve65QeRmOV2p2cfPrB7ECDc96KS8/Bkg/ljIZYegzdkh3RvPOnfgAcNujyZbypBvxsmAdI0yTZCv1xFf2AnsAwq8sMfVnksBwkeonQDMmfQh/9IQBuvnZ9G8gPZbvjoN1WlZwI/OsJG8sczfPZNjYhLZaozNKi26TIySqQqQ1oNG0s+wn92abYquhdlyHbQLcU0EIza8NibtgG9/NHxjnvO8aDn9Nny9HiXol2kWau1zYdNu8/btum1/7RvpSSgKHv0PPcBeBNGuwc8aqRgKkFShuxp5eCes6UV9vBLjxvX0hEp7HdbjLVUxEZSC0kN+35yhjLgKj8dOw/HDjCagwMe0oAOkK5k1Vsb97KjtD9RiBpS0jJlCxEsN2m6iqrFned++hR/7yoTtEEcEEeC9AUuH06SeVPONGxMs2ZelKG4HxnozAKqTBCCbY+3kzYXp6cfwsnbECgTTi7Oxv8cPStZjtZUKzcg4KABKUFpkJtU8K3hWDETHiDo7DXdjpgh7nehhmwemWsmV5T1227kCpDqAvfLVJKzRfoOJkPCthiWeHX98DJcReu1iGcmGzS3J7aXIxOv95Wi5JdbeHgLOZTuOQ6OBzwSEaDPJDB0GY7BAwydDjqyl2SQqSdbo2ryTVG2Equ8ePSM8FGnXNslsNJklaB8VuHm4FZUBb309KurD5PzyU14Pj7HKKQPaFBXNII2JfUNShEVuLP+dRqtx8vl8NOn8rn36dPn7323x84dBtJqDwwD1EfoXx8xFNfHZsH5rx9uJh8mF2NmjFX0iKx5j3EMHqwpSHHH8afgFoi09gYAaPDad376ybFCp39zBtpck/YSWaY0/f8y5o+ThZV4N7mY3PxeS0CFir/D0IPlwCb4iH+BqXiBEGsaCN6AHQOm7C/J26FzeLjh4WW/0eFgeDgg00ahzZYtNSItd/xSbhlL1yMBOMqHTw/L0rMCSOXdyn1KwFLRB4EEy3COOJXOc/V7CYrwfwVoLSsAvdM2xJF7NRYksmD25zh72jGkrKIqYgcKrLFMINVyadPvxgSW+Lhvb4i7za0I1xiSNzdF01HfshWWhRANbv4Z4F0iuPAdfFRcHe/kalhNsGDzbo7eYnLT0IYJUHn4RrO07+8kM86aJo0/QCXgbwdfIOMhoCHal4sqdR5WQVaEur2SWOiY/JHPXYuWt+uNRcWnufbYC4jYEXRBJmCTeNo/fDN77mqKoOuG/bRzuGOPYTvLK3x/+Sv7sSC1cR5o3URJJgrtFRJo2yeUCpmQhe1Gs+zaDVFWfiaTu9hkIazubRGtPJdncViuKI1xePjvjSgeDwHYiFWcWCwCzjIEm2yRF4VYwNYPHvI0qjCdUOVVlHJXID/YJKNF+dDL8juBm6CmixwdFtHOAxgILig6KSOH3F71xk9PIGQ9GeWIUiBQJTqCcp0mFYb0SvCBgFZTV3wBcYTQHVZV+Djzp4eDGWM+j0iPF/ln7uy5PReVBql0eEsrRUOYoDuNtJ7zfDoAZoHn57jlECTj5dvBHcQG9w+MvXOrqFkb66KENK8Y2JnIUi2fHABL3kH7ptzNEtmDSmodHir9ppmdulNsIck4AkD2C72fDmZBmsMiert3fD0AOMHs1rLrrUIKNT4Ot3UMTGiTgywOMU8WciSrEXTFwLgVbHU/QlvnFw6JnefxJmW0uwL2JAYZrHKCpRvdkjBxgouw14Lp0VaV7zBR+xfdM+Uy0caPyGB89BoOVKfXZYlgY/9hQqw0MzYYWubA4dFqdcSsFVIrzkFwpNDIySUl0MAOTa+IvJJ01BnguLT7ntKLeoTURTMdjyrTGwYEwszwPo08EM2M4xgYGt/JjwpHLU8U1mT61IOT5StuYRVFgdYvfgKfzomW8ILEN0ZGZXBVbRrk1HgVhfPNEujWxbeWUPfkeEAto+fT8RcJus1OYx4ZBpxU1JeSzJj+B8BDFBdnxMaMPMw4Xy47aU8kNpGqgwH82QgLvOg5YOztWxlc5uf17nryLBv+yovgpRPngo3rEmyRxuw/Y5gVZKIcUZnhFceDuwkA4pO5SxECHAre7lgLMgR1tShDMIViZa3twR6a45/L04lzcnrtKGAkscEOkJB6GNB7VraQWkZJSroesCtBxGrrwECKLDb9y/C2cMnSZF5E4GyhQ9YlJy2L3Iy81bGIPfUC76K0FKbMvSk2duQqLhb52vL3WmIRUZXthoTdHnGoJaHRsWY6JSxA5ZdVw62AxnHxsI/nJEgV/qZ6GfID3p9dncIHI/HAABVvMWuRgJAfcjbwOCHLnv4D267rPDaSEbaSARub2PjbdcwuygHUrfmobSktMvf9XWF6qq+YtZYGB7PER0v+sZyI0lQrM67UAB/j4sRt4AfgniAoMKA/fnfi6lSXlg/g+CzuiN5oe7vKfvLWx2sOdZDFeuIPKQgC5snkbIJwEGuVVGNlVWLYHdDBUBRvE1q4pmBopFhxbRh92QhXYtYKxu9O/8435dF6kcgKDapq8IfN5HdX1QnljVkZu31XBxt+wCBCXXK1J+LaCtXbZUs8UJ4tE1qOYr6tSIm8/zVXXOhKJe9l/83rVhi/JXU6EQPBXVLBzfGr13VN1R2AxjfOjyPVAp5QetLgsDTODzZgdGUoaoOFieAFQbP7EEsHPffHCcyJ+vUkMB1RMshPAP7mvH716sUr5GO7uq1NBYpbdAz2c3MwoO1r8kb+5liVcG2QBocFGErMYq+76so/aHcT0b31dpmnoHW4CpLmRtELq4mmfd0WwwX6x0+qBeVF+qamkGjy9qkrbbx60+h6Sbl1iOG4ijTgP578dfIunFyMb3rq6/XH01/Cs/dXJ+fEhGDczw0uBCtmSR4yFcUG9K/nvgWqzx8rwGDw+sUPL804LxaGUkZILhculucmH6AHMhTDA03MDwH/CTGi4vmUm1OQKP3bYDEJiKpwgyRfVKlH+Aa4OTKA0HNevOq/oWQR4eFr3qMw1EgNW+WMvswk5Z85BwttptkwAx56Kf3ZrK7mAaiIE9htfd+uyQDR83k6HLyeSYd47n760u+TUxzEAp1XxEzSG6RNFWZVHlGv4/7wGDP6pvOM6MgKDdDwFVAgWod61bGbUmP1qgN4UaFZY4TBdB7FzGdSCRW3rMVhGYIUSTdU40A/wM/EWk/ZEuOORVUiT3nuvzDypT6k7K7jS6vRyCyzg00EmGRUrtbRTz2PXN8IKBzo7kgHihnAem2zzhqmFrl9XEk5UsOT0Fdzoy2GDUysZUNdZcS9shp/gKDatFKWmfhSebg2zZXEXgp9XHHgcdQlBs2BnuTYckVAEaPvJCMsXcAYiEXuZK5KDVX377f35/REE8a2ul7/6YA7EJPQ/BlsKWxmbhsJUdYPKvi0Ms2cLuVHrGAlp9paPL7LplO7vA5c2btuS7wXixJpfNcOlk0Hw5kUA/iVQMsFpkjWdCD//p0SzxV9e92x1VWIFJ7B1HD+LrNWCAAZxe3L/9zaBuKsEWD2OS/ue8Be5b3MXTIulqUjU54yzOjI7ghaJwr3WA1kJ8H8Vlij1Fp8mrxc/sHwxQz3nGfh5gOH34vHURqt5nGEDYfU+sXMSuLSMMgOgBpt9H3ZOV4W5e4y3zk5GrMqj2rUecFMY6ozwRyzRE81HrKvQYYvfsaSItmEHEmmt8LPzkkAk3yxfDZ0YMq9gfQ93OjtYsdqsQaL8XtnT5vXsHktlmUGonolPATAPBYUa6Bbgoc9PHcISut4todDX2gO5cWuDw98rQM1QANoOqCmPOJPYEDXpxB2OyhIU/RQJiXg5ZJV8uVRJl1xsbnIJ5NnVLh+DRgcHEXQjNEcllv6jaVTJqCCoyJIEBQYDUdJ9gf0GzruEh1y9ztrNbXC9baJmKcucGvn7QjWa+WuU+9olY1vwsm7i5PzMebel8S2uVEdUd1FVGq2WSOPgukqMhDZeYYpXq8DCsJuFCWai+TVZQOGBO88BkLeUV1knKxD+ahgDGZ+o57kWyYPxmua8nZWG9TxnmGOh1PsOQfwCPs4r31WSlYQAqrqGINC3vacOb3A40KNPTl7SnkOlx/IShKzImFf6cw3VzVsDSfUvIAvuWfDHoIZKefGLjlogqADUh7DIBlnFVmR7tY0DZFwIsPoBPwa0okrPrNjOhyqAIGb0lkF0x3xrc8BWIb4IV9rR+X6o2Jgw1cJ304uzm6AKX+bnI57hA3KMDoGBFZ2A+g8wXlTo+MZ1mE1vvODZ01VfdSF6yAY4pBZCfQCPw0N3ulRHNR6T//ggTTmM5jb1D5rNlNuWpSgPdxT4+C68FkkNL///EqWNjoPeK4vWOXA63mWLDyU/tZxsrqiTBXVeGHPMVY39Ck2BF9RWol6KsbWxO60ubi3rvtH+d3oXk+5XX0mxfKWFW83xLWnGgCghEdR0l0t/wKXaDI0+KRjAPkItrnn2fO3u8iFm9ZdZ7hiivhERe7B0RXZno2S5lr+qFfdXguDlhjwohOiAf/xpsB3dNRJQgYewVer6IvXD/oGHx22xgOneNAw+dZRgjtUwgrWOeg/PbjfWexW0+z2iYsyvrr6eOW3AzGS9wOgt4eIbF+cFIS7V7O6TR+JvBGl7+6pRBqParkZ+za5OsS3Z79vtwjQiqp3Hhq6+KZzMxlZSCucKPGmSpZO2WTi9+S6IEtysG7ooRJ7itig4VQfvWlCwLBGRJb9WXpN7xZZmqyL83heNqOAVq/wxDEemMCzGna0+lkpQ9NkL4BBCohUqt5BoWbhiT80tv5eTwPngKFGiYW/6yDWJqvXaGqQgITCTFVKsBWjo0sNPvAtArE4adDHomU9pkwCt43B06uP19fhxeTU9dmvdIdPnTZSnOGXNalVwhfdJ2pIZToRehOkthx71FF/32LoObCP1UFhed721wzL+dIHEV+ALUNMrarYJVuuoZlqfS4Ey4Vtx3OXeJZ8yEfKNUu0nDk0NrJ7+QhebaXFgSEw1Ll4FhojkLVbjvkueTB9BFE94xjykcdArSIby3bchL82Tmi2ja0FkLQSYSkKTCbVKq3fPPpLY0xdVWs9o2CdAVJJeQqLN/pKsWO1R0OalNTUej3rHpYZbVYb30om4Qfk+ZrGFl+0Ei0tUmjzt224NmundyRSOsMi9vzNcfx2G3ui2iYn2xQjRs9trLHcyia579cMvGS9wkdYd6mcThrpqjcaUt714NWna5HB0K+XJzT4nUAjyGulnTq2ImYRRJuEtt9HTtD1h1+vzsP//vg2xPp2XGUtt+TBXrMmCo+fueymEAx/pxBunW75DQ+fsIzYg6E5qEhu7+b5ppC1l2j3rEDCgZylDAtGGQx3VJXYMX670EPe1iotyeSaTN04wfwEvi3d2V70zNZdyoldvdqO1fpFVxNO6ym6s+0sY0uT2rDyyK3Rp4h7TuPmC9+yvNq77Em8Yq6DVEaJofxR51UU8SPlzzECIyKo6x4tatCma/IRj8tXoBgWoSnkGIhpYeldqXaS3pSkUQw7CcYVWGNLl5aQHpGXlJhukg4zUe8ZysQ/+0PH45e1LPG/GhkS7TN2+ImNO0rsqzS61YQLZMYoHVXMbEoR4uYfkWvWc+bR4j7Nb0dUro4LyL0aCW/yesio4Vmjl1Nruy6hjUACShCtRL6pPOnKDPb4Mi1InTqh7ZryeHgVAPgtrRT1UxQCRYGSsuSsr6xHQH+dLbp6tmgFkCOvaOF3wgJ+Apknh/Ncrn/mMBdavEksHa8VSQz4xmxt2hASnenwB+DuxsJj5gE5m5Ir22ljLkFzN7e6gUguseJnRPcdBVjOUxqeI9gw94IC1L5xyUobjKTLVIJDNZndu8T7BrSeGq4GYAhAPDjJstmb0gZRcTj+gXk8HoWPIWI4vIbDwpCi4l8b9gcaWx4bqOwMKTBJJVal1/BntaBC70fOyiOF+r0z8GG56tWagRfeoZfLKTanbW+IvSGmVOQPkNnQ38Ui2fqVNtyst9Lc8Bu6YmgRDnM3tsqfzr42fX5yf9sLJ2jPZjHWJhELxJvVuvSsqfg67AJEmLufMtfvBtTUFTqby8Bgi2pZK+2RbaL2L0pEElpYlvcEK7Mr0NXWj55hymuZundbtetLnqQ21Sm45ox/6ogvNfokpbrUgI0rHbe5jRLRcRy4Lbe6nDKqCaRsI98wIDOJXOKHGlvrce5JVYEU6x9iroO4kpIBK/DhagC12FOEJRTx7IDU6DskXYektTHrNC60EdEedudotBZlKsQadNkr31a+NZ8MD/YL4+ZdY9/v5iMLSGuDognimZ4o0nqkzX9/356VW/MbpD5V1GWbNOXiOpCzejNj5C4EaRtqyVVvbNt35h1KydFHrDG2Y6K2C8UBUfzfcdCn2qJho2SrqLMTsgCgY59rB9gwFbSk4uChVDvSBaBgIBtvXUWNykpvZJpol9RljX/qiyCYJTNpCJhN8Q1f1UT6AGuopRKg0A0fIGEN8NWY+/wxJA04NC7P0zjO2irQQsCmjwKFbAqUiDYpHtcsiBIUeeJTwLgKvnJ58ZvSYFb6n8rDJECUWQN7rLowRpJIDy4VsVVjgO+GziHCxEfMSDYZmEoa3H/oy1fQr8Bac97n8gqD+oQQ+Z98/QqRRTbgW1ySupxlYN/QYi25ogFFMEkDk2CRJe5E4H/Y3kpdJEMOC8WP61eDmc/3ItjZOj2evOgC4Ia0zZ9QJK0rrPYdwTE0rr6Izjhb+elTSUcpP30K8M8U/5099+G12/vmU0XW7CS7D6UrRsFN+OU+iwP6P7qrhm5l4Ds+1B1h2JRqlSW+aAXRgz6HSclWnkvdh+4gUR223V8mD+fAFqiR7vE9QPoKHUCxJ3lJbXL7sqanXfvyFfeTK0/Rg1qVaeHGULgLy83qqYefAOL5za87UMTr274JP/twEyP07WeifKoPiMUXURp3R3ThifD5boYteOr72XZn5tvJ9n25epjwV+OWM1J8/69XWT79+kpC2jjn+BxU2QqmWKNupK1RPVilpNZs4pys7fpy2gAAexIedo7BhhkZny8nl2N6D7M031/fnH389YYz3tjluG9N5x3M8iKv3uWbLO6emLbDWiFAY5Qbhj7+sk5AlnZFBNVVNIN2yFF9wjkH/IMP6tILnqoq/NWLWa+iNBuoMCbUoVxDNOdrKmsa6puJAzSpZZl7l1TeFQJW/D9qX8Ln/+Uj3Wgfm/cseOq49Z6T7FERw09hHsSL6Dxuxhc+GVIMzXA+JJRn6aOjPIlS3Quhbpv8jC4DRetE7Ppduc1WVK91dEcSPOCjPfVvdSWZ3w2HrhradhzIhun3upNy5tUgXKDFK7xlRONGEK3BtzRt3JXQQmjLlNStAHV7WtYtrY0Ta3y+qifLi/NKnzpTJ+vw4ivoEK0TvvqqPqtvY6avThhuj8tap740JRgFVeFWih0A7LPJDQhqCWrriVMwlixXVcyNVUUODifnJ+/H1yEWz7G3o5xpUeF1aDKHVlceeDt2/O4i0pxuBpH0w59BIcvpj+RmIBNoxLW/VKWbq/J36/6z5gJ3SCfNEiaL6guVuo4qmEdVet9YothasmZpZs2hHGTt7lWXjvd0cWBnw7qOtxOwwaZ23aR6K9O1dAte4yKovSKYXC15o3nDWjdY0+BEcwXIOVLpURyDchZPFEs1iBWnyQGATJirtLOu6WzQpf7JQVKbEEZavDO/IocLNIe1MAk6wgJy06wisPxgq2xW4Om0znQm6oYR2kl8eEnuqhPZ55K+4OGh2xFe+O4b7bEOKVTAPbzEg0jl4kqQizty3Z3tldaAHnhOeETWk+rb39lV3l/xrd1oPTr7DXb2k0GCbx2OV/jpBEE+Nlsr0UT5OSx6xNPb5Np7zdhlzzEKAjlpCiIrqR5VJs5MorIslUjQH0SjrDnFPAMqx/zPSINkxUMpRyNnh0c3kEUa+8/GA82loZGChSmlm/JuhLFkSZptgFw0GrkO2nkWDJYyq9MK4h4qcvlt4FIX0ZlWmpaP/98dQhojDGleYYibJgylVsULKfGiF4+2Ev4CIj3gmRbf/z9w1hS7'"'"')))" \
    --fabric=erdma --adapters=1 --gpus=8
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
    --env=NCCL_SOCKET_IFNAME=eth0 \
    --env=NCCL_IB_HCA=erdma \
    --env=NCCL_IB_GID_INDEX=-1 \
    --env=NCCL_IB_ADDR_RANGE=10.0.0.0/8 \
    123456789012.dkr.ecr.us-west-2.amazonaws.com/team/image@sha256:5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e sh -c "$serve" serve "$public"
done
remote "${hosts[0]}" docker exec --interactive "$name" sh -c 'umask 077; cat > /root/.ssh/id_ed25519' < "$key/id"
addresses=$(for host in "${hosts[@]}"; do ssh -G "$host" | sed -n 's/^hostname //p'; done | paste -sd,)
start='set -u
mpirun --allow-run-as-root --tag-output -np 16 -N 8 --bind-to none \
  --mca pml ^cm,ucx --mca btl tcp,self --host "$1" \
  --mca plm_rsh_args "-p 2222 -o ConnectionAttempts=10" --mca btl_tcp_if_exclude lo,docker0 --mca oob_tcp_if_exclude lo,docker0 \
  -x NCCL_NET \
  -x NCCL_DEBUG \
  -x NCCL_DEBUG_FILE \
  -x NCCL_SOCKET_IFNAME \
  -x NCCL_IB_HCA \
  -x NCCL_IB_GID_INDEX \
  -x NCCL_IB_ADDR_RANGE \
  /opt/nccl-tests/bin/all_reduce_perf -b 8 -e 16G -f 2 -g 1 -c 1 -n 100 && status=0 || status=$?
mpirun --allow-run-as-root --tag-output -np 2 -N 1 --host "$1" \
  --mca plm_rsh_args "-p 2222 -o ConnectionAttempts=10" --mca btl_tcp_if_exclude lo,docker0 --mca oob_tcp_if_exclude lo,docker0 \
  sh -c '"'"'tail -v -n +1 /tmp/nccl/*.log'"'"'
exit "$status"
'
slots=$(echo "$addresses" | sed 's/,/:8,/g;s/$/:8/')
remote "${hosts[0]}" docker exec "$name" sh -c "$start" start "$slots"
