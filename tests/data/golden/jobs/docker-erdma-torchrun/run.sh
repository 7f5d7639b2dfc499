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
  python3 -c "exec(__import__('"'"'zlib'"'"').decompress(__import__('"'"'base64'"'"').b64decode('"'"'eNrFPGtT28iy3/kVcz9kJSWysAmhEp94q1gwiStAKGD33C3jq5KtMWiRJV89SLjZ/PfT3fPQ6GED++WmarEeMz3dPf2a7tYus3TFfH9ZFmXGfZ9Fq3WaFSxIkrQIiihN8h31KLtdB1nOq/sseFQ3y0VSxOrmNk7n6jpaB2GY8VyD+StPE3Wd6qcZr67ytMwW+j7nMV8U+i5d3PPqrshK4105X2fpwlgrf9SXRbTiO0sktnhcR8mtIvT6z4uxf/R5fPRlcv7JZYcJkLSsPx3uMPhHcxdpjNggW7xgvlBAJgXPgiLNaOBJlIS4wIgV5TrmU0DSZerPjIZ8ikL9OkoKt+KSN7l4ODgU18aESQIrLIMFb0EV70+CRZHDuzBaFOIVEDLbOTu8/AJPrSxcBb1oFdzyvJekIe8t7vji3tq5+Hp5De/3Pux/+LBzcXg9GZ8fjeHBQd/r71yOD48+w807uJ5cHPmnX48Q2GB/5+rs8PTUv/p8hrfs40f2tr9zeHTlHx1eHP42OZ1c/+my3y4nx58Qlj1467LBu/2+AxCPJ5fjo+sreLzP/mbvdybnV5NjGmXFqeUyK8T9zfDqIcrm4oIXd/i7SCL8WadhLwp7cZTc4+0yBlHlMQ0I4shydnZCvmTLKMsLHwZxex0Ud0NklcN6v+Kv2M8iexQX+O9bVNyxdM0TGu0ynixS3MSRVRbL3nuAzrMszfKRlfF1DPtgOSzIYZWYV0DwX8ZBjxJ64WU8CAkDx4NVo7Xt0FD+fcHXBft6NUaQ1XQ51bJ2dhZxkOfsmD9EC4BPI5Ao34+SqPB9G3Ri6bIsTYuhkKw6jedpYqCFg70kWKHspLmHQ715kHN8ROQ69aFhFj3wrGuwegCExXhBs9kbZu2GhOqumGo5DYg5WBJcvbEpNBP1J98d7NIYqzERdp5nCS+emIuy4MfBIy7NRiDvYznPqoO7jUJUkjjKCxuu/SKYx21wJvpAzRynTFu84AkIkMOWacbokkUJ2T0P/7QYEyVL2Lp5kIQ+gdwt6ee15cwa+wTaCevh1qr5xuRdCx7SzGl/xsBOCfx4nHOUGwUpUtYCUc+BKh7aPwwGPhN3xV5kVVAUWb6bADr5LmD9k/XYD8v62divVVHWt0rTAZZ4l6R6F7aFyKiQRFpwDMyG/QOqDPybpNEyZY4bByvN0zS2Nd9AJZMQpTZYoBOoXrj48NL/+gVsDlz9G66kmTCkAIitNEgZ9ClY6pm0/8AtsOz8O3IrC5Jbbu+9O3AqPSv494agWq9yZF6++yq02CtGa7gCiCFjQDD4WpreZUv0I+khYIlOb2EjgBpUYKMtBzp1yI8Rj0NmEyauAux2oC73HVwm76ZC8hFNnS9kPbe1XSJWorZNhSmTnJSGTj6k4cKCCZEk+QMeS8GtBLNDmAzVAKkEZSJs0qW/DOZZtLAlSsMaFkAovd2GI7BPDEJMbIsvA/QwHB2p5bRs9lSsQ+jLS5gmF0dY4lKb1pEEPtv550BQZjpwkywgB6935Gk2uBDalAlsGwhNXQNkOCP5soCoL+IZSmGLywqgEEKtpN10aUAVYWLGbMdQCjWq4rgUXYv8MUUMYnG8BKvP7tHwx+wOvHOSsle5BA6EQYAkWRflBDxOg5CHYBwyhjOjBHxQAtiJuQknaZdSAGOsy+OzQ+UceCwxFEhX+KFzQO4gPt5faZTYkj3CBXczYTrcnxkWYRuNQFGQcUQ4A7uGBq/hIzT6sEE4bMVw6BDClXtaHUlV8IBAwtegicSA4MYQDQnqHPZRPu+xwfO24lWIy8PfIAzWBe7zIkjYnAO/eEgYEXeNNaQESjaE6bekkp0u3kn5qsRHRBmIuXV4dD35Y2wpHTEHaPHCFbbQQs5PCZU4yQipgUgbhGgIooUUVNuM8CTyKe5Ovh39tl5LgpAAOUyir6Rk1rBMGOmg8tMUY7ZYvk3btyBLQJPbAgWUwTINOXJZkaZCwnDr7iIITMYnh2BDePAAwlUCK9hdmhcXYK+RFWJZcOaOaYLQ/22yP+RDOpxu3eR08m3YdJ/2Ji7qILLhAxdpUkRJyZuAguTRtq2HPQtXuwdMCJaNr4AWL8p9EW6mcNwQDst38Y0rBlfihpQ73Y63EjMcJHdBmqxPk2NUncsUTmIPe2wOfMYFe7QgA73OhS3TQZKaKN04boUhdrWIIOPesozjVVAs7mzr5iZ8YylP3mAObCwnBQQEicikXM15Jin1G2QS72gACiXGHQLorAZU2XSCXV9vK2/Oj45O/clvPnDGn5wfj/979CoXgllxLS8Xd8g6sioyrjG54NSWE5aO8AB5re/pZsQM/dmGGqpTYO6Z3FFhMLqRMxRmxVdp9mgbh7tO7dmmMXG0ijAUVakU75YXGT209aPL08nZ5No/G5/hud4BNtBUtJFlTnO9nAcZysn/HAXr8XI5vLnJX9s3N9/eOEA6RnxVRIZ5l12Mt3cFAMvBEd7Z76fXk9PJ+ViwfxU8Io/v8VQi1pE2FQ+stKEoOuKVd5ul5doeAKDBgcN+BWJVDuIXNtBGXFpR8ldE9X8ZZCONsC0nk/PJ9Z+VGis0nC3mH3YBh+Al/oLPEvuCGNNC8KRI0cF9iX4bsl6vFMvLeaPeYNgbUGih0Bb+jgbt7rJBf29fCmUtEYHEi6M3Xj0sc7t2FMzvVtZzsgiKPwjEW/pzxClnr9X9Msuj/+Pg1XUmZ6u3wFXdCgPSOaD8DClHDRDWNigCEVKB60s4ciyVXn47FrC1e/26DtyVt9xfY7rK1INm1L7JX2ScNwT4M8C7QHD+CbxUghxuEmTYRPCDabcQb/C/tKoWMZRjfKKl2HG2chgJJnrxBswZ3jN8gPKGgIaYy1wUMXtYeUnm6/EQUoF1pniQ/ZXOrbrvXZc1Bj4vxMdZwL+Ocxfuf/IQhVEw7fc+zF5bmiMYx+E8HSluUS0cVwsRP138LoJacCpIB3rmAA6hmQ4RCXQ9QJTOhJAFLSMqu5QgSPJvlM3KysS2BPa9fEWpxF7vf0uePfYAyEiYZb5YeCLT55XJIs0yvgBN9x7SOCgwpVekRRCLqcB28KOjRf7gJukdR7mv+CFXhc2r5+IMxBaUmJBJAzFezcZXz2BgRYyKRikHoJKNXr6OowJP87ntII+mFv8O1gehM3GWx8uZM+0NZgLzeYB56WmWfhOTbcu10DVQBABPaYdoCRN0Z2DhstfTAQgJXL9GLUOQAi+nfsJDbFBvYO2tKqKoNvZF2WSxYxAboSi1AnMALGUGfXLeLQrJg0oo93rKhWnhpml0sIgSEf5TcEjPp4OZF6ewefZ2Da8WgGD6/I9TuBFxtzpPVPgwMZYZmNSVOoyQ/idDBJe0Qz7DUsE2rVdhNClUQFHvo90Iqjsj8ZppM+R7zcUZqJa1Eafz3dVqV2ydT6NEek8cx428c5QDofWszyoNy5hLI0STAY5F0v2cWTTDpyl6c8WqMnNoQCDMHCP4rxKkRBkCTx4w67R13xWOWl8V1hRJVIvjEhm/ha2Cs3E4pFcQ57NgCQ/ILGL6QWYwDOGsEhlCQr+uIW7/IpIgZ0S3PgZ35WXJ3wmgkqu7CD9KE+v5dPEIj1isQV8CmxKolAsVWLAKNS+XQ1TTY5JhQRRwIl0uK5ogShUijmW0IVjHRe6Dxw1VPPAEy2E4/lwcTdjh0RVTwMhAgLuRkFws4LzKW8gsgygmlwJY5aDZ2gkZSFFgoO/wyCtVtIlpI8WISihQl4PQ2s70Kfd5mc95me+uF5EsLVA63hk2875d5RJKmQplsfqWjqvfY8wsynVPnJBrkWq7bCYWSZNlRNuQzTcVySjQXYtqpq6U2fv9DwfVMW1TfNuJGEhPTlWivXcHVU3vDkDjE/ZxpEbAFW4lLQ7bwt7XAaMbp8MJlpUhAoBh9z4Wfm3r4wRoonmuBKbPTAbrCcAv7ODdu7fvMD6sV0XbXKAQvWOxz83FgLcH5Il/YbqK2gZnSJYXrGFfQru74ufstKfx4L72dJnGIP6ikk10UaBeG6L5Xo3F8Fjf/KpGUBmnb2a7JZpCbaqCj10pi655S5UhYRP1f0/82PLu8AROeeNrV729guOWf/zp8vCMBBBs3NyMwdJ0hSEXti949Ne2fgN+zx8LWH9w8Pb9vsGfjEOMmBeVVOA22VZ0CjPIKgA0h2qxKw9s2xL8C54dbIcSYQoKZT0bgiWBUOeEF6UQ3NuEqYcqkQAEl7191//QdxUOjpY4OmuNxKJFKhAXi0GcJRKPMGKaDBOQm30ZvyVV4QpgIkYuvHPqNQig59t0ODiYyQBwbt187/cpCPRCjsEa4iX5DNal8JMiDWjWXn+4h2lsM1hEdGRFYg42DOgP1r7ebZuSz8Pmdruw1blRzq6aH/42wmkQNBpmWoy4pIQ+/w5BFTYV4AA8SGdFjtIDJ0E809HTWESj+KQ2YmSWf7+lGVWMWzPU9chyjEh5R08ULQhFThRWlGC9srNfgIItUaMf0apIniCDVAdfmWjiEMFoMTiRqCJT8JXTrFAlELXbuE3m7ohaRSRRxT0EmUVvoFgJzEKGy6x2FmJoIg8InXAEiBo/o7mqcav5b7YAoCioBWRTc4jzAsgdqElwDlafqSfAqIVItknIstqu1qEtQcaYcbmWb1smOFty6zIsRudPHsB1brJ9fmydBbUu6WwkGr/xtT85OT88G2M6EjcXU6RVwri4C6icUa4pb597HEK3LE0wT2h3QEHYjcIX0AHWfSDC4yqTarBXtPZQtFHVq6O1Ly/VJDh6NnLqL6EWNDOOGa3KUowzgV77FeYKwPsv7kRNQqIbpjLIDhZUrxAIOKrb5oxzDOY2t9ssscdqKFqtdNFcnr+qjXXRxN7Ly1WA4fzWxpylAKd7FdQ1QpGXAgraMzlYjhNDxNtGIwaKM09okrTVC6C74H7OM2CTbeuaf7/ZrENrTC1VTZghCBMkCgnCpGDCqbi1FDIs2i62iXdnJKnTNKJhCLEUmQXNDLSMfaF69CzI7+1WuGjLeNFlfwRxyemaYgDejiK7Duk8ur2bp2Um83CYnlitA9R5ij7wGGaIlEq7EHBnW+8GWiQQNmCgODsLcqdWGGHEgE+B00+iZ452NTynVnt2jT4RtYomy5pt3oG6nECInYhGR5v6DXUjicuoL9DxFjGoj70pYH+C51qjK9R0KVIrKR5pC4a1HlJtodGk9cLM6KxXjW4wQ7JbzzGkU0iUFk1S4gq1NUzkmBql/klSXdllaYab2ozT7Blqxo/+kNniYaU8zk8jDhAtgNi2GYELX6VAXZpECxDuN0x1XNbbELsV1gIGYbsmHT0hePOxJj06CUAfIHSFcDJOb0dUVUDWi1mNwxqdhzBmleRisrayOx1HNAICylgg7mlZ2Kvgu933+gO3IqzXIqzjcNESNuMkJ8WMVJ/Ww+6tdWG3jldPnQrVv1WU5+LUIs/RQIAt4t6KWgdPf/hC8cLphJUFEdgbuZxtiXy1cCfYWhKFMoe5Iq2Gd0IgTWsu0ZkO34Ncqh3HKBn7iSmI2MwUk/dC7VqDIWLJsU4wosZqD1NB4FsrCKvgnuOBwnaMftQ2GMmGqQQ3tdDkWiTjBjRXLVcBMGwSjJXm0p6SIqjquLgBBslVvAc0znBkMU5IwlYhjB8/a2ZTeDlKurnMd0wwUcFXud0oXWuLAqAUVTY5kDds4MDuVJszg+ijwwvlUxxO6m3YJ1B0fQMmFeZbsKHGI+0xnYapHtaYhLFo3Z1NZz+beQSkti3d+BREIgmDOLZpu8Nytc7tGtqOR83LnCwMHN8Sy+kG1DTg+igigIH2aeuJvnaT7XypiSMrdJ2VjZxQp4mom4dNDso2oiRtJDeoSzvN8Sy/JbelReCvmvzhc+wHxg+UmSMb0unstFOrESX92RajQajlMedrsNDvnLpLqZjVSqR1WBr9IcCbLi7W5rREER2obQa2KJMjHcQ5T0mnFMIX2DJKZyZlHIvMJliPyukXwWMlt/XgW8ih+LjEEz/2tBbognZP5X97Xh/dUSNgqkXFhtfSmiVOh9IkyoiRch0igOjKC6ugrpEZptRAlRn+oRvKhBwl0ieZQ/GJaNMmW4V5cWmgMDeL1v2nYTnnjz4Z5aHxCYlGbda2yrV163xRoFCkgAFBGWNPR0YMoBOm6HlBzjoqS4nvlFGtdSxhuKIAoroN6mtVOQnJGb249A0uu+ePozhYzcOA4bMh6yFMvMSzZ1P6KNNn/Uv3bmJMimUDoZME2jVqi5QxEN2bxBY5QGYdqvzBoN7gWdtpxQOLIgp0FGQEZLWCGPyveqRbZSUo2EV6jEeDGcWIuYpppErp9YRYIlyfdPQZdcR6FstwAPpbEaPb4uYmp+aKmxsPf6b4d/bagceW++IaVI0EKcpDedCxzv+YHE9UTQzdLF3ongtqEBIIys8IYM74xJiw6UsFWTAE4a0wcUUDsO6dHYIYSClQWllv0H5ev+dP1ATr7Pr3LQDxs4qXQGuUR2nn7JdXVR3KuIT8O8+NjsQuPBG+6PjbgKf+eGJzq2R3J2yrEZN6MNcP+/4K1SYEgn9WnyD8/37r9fzvuwjfMrFfU9a2Qtj4IhDtbi3fXaMhTCngqr549BAcQcOpIbjxkfHyYnIxpudAmfn86vr46+/XLpOef7TXr5FwApSdp8VJWiZhNzE6FGnlX4xVrgX08fd1BCaqKx0jodkDottWp3fzFVLsiRvROUMPBKmqMqE3sNo56YQps+jrFJVh8dI1fc051J+3eudovGWBcGMSSwn2qP3pi/OPu6gwGDQ7Gm3V4fRE81iQhXDLzVp8QK0wVIJPmGG3MOYU3wOkSfxICS3hrGT3pfruCo4AXCS2eWg5Xf0dAhHxVWzXxyaatZ5ol6vu1ScBTjcc6hjv+LikDs5xuxPXZjOumbduLWP02Wq/t2Foox2xhcoGOlT3XTWe9lLtdh0Ill2om7C51XWIRuuPxlr0+TiGXxe52ZoJVAWNBs9QNPzJ2eGn8ZV//vV4LIJoedSCEdjgrzK9utZh/0OlIRUYacLx1stkJW3XarGxQ2k1K8Vg3abeVVw0i8ruC6scLdY3qzvVnop0UnNT6xUS9VRm8umbikYX/FJ+wd2Iy9wO++Kam1zp5koUMACGLGWocoGutDSQrm5FjqWOpdMlh3INT29Ka3mPDl1SWlYBBAkgI+UKgs9WJ1qk2kRJhDKqyUtxOpRzLugN1sVvR/gxu2OMBzsS+gq4jR2ZpEgW6gWdOkaWtXW8skMwAz9wHJHfVXP7W6fKZsSXTiO2d84bbJ1Hx7WXLyc28vkMQekyRyudpHQ7FtaxN4pOW3YzE4JJcYixnZ2q2gExcFQ8ujJYN6sfwohIJOgH0cgrSTEbmuSaf480SNF4TRUEI4OPXU8oIjXtcBt4oAMeGrUTICku87sR5qMkazYBsjDgEEVI9sobLGWqt5US6il2OW3g0ghTgxaR5eD/bMKnNXyf6PJ9VBrfl34AwnMPu3ZtUiW8AyY9wHkSjpP/AWeuHdU='"'"')))" \
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
