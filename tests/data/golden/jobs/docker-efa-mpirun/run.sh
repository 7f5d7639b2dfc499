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
  python3 -c "exec(__import__('"'"'zlib'"'"').decompress(__import__('"'"'base64'"'"').b64decode('"'"'eNrFPGtz2za23/0reHcmSzKRacl5bKONOuPaSqpp7Hhst3c7ii6HEiGbNUVqScqJbzf//Z4HAAIkJTn9cjOtxQdwcHBwcN7gsshXThguN9WmEGHoJKt1XlROlGV5FVVJnpUH6lFxu46KUtT3RfSobhbV41ropstFVqXq5jbN5+o6WUdxXIhSt/yjzDN1neunhaivynxTLPR9KVKxqPRdvrgX9V1VbIx3m/m6yBfGWOWjvqySlThY4tQB7yS7VdO++f1yHJ7+PD79ZXLxoeecZDDBpf10eODAP+q7yFPEBokURPOFAjKpRBFVedFzrsW/NyID7LHL+ySLcaiRU23WqZgCuj1H/ZlRkw9JrF8nWdWr6RVMLh/enPC10WGSwVjLaCFaUPn9+2hRlfAuThYVv4Ip8aurKEl34fKbKEqYWQMf+Wd2cH5y9Qu8c4t4FR0mq+hWlIdZHovDxZ1Y3LsHl5+ubuD98dtXb98eXJ7cTMYXp2N48KYf9A+uxienP8PNa7w+mXy8DtWTY3gyuTwNP346RfCDVwfX5ycfP4bXP5/jrfPunfOyf3Byeh2enlye/DT5OLn5vef8dDU5+4DQvcHLnjN4/arvwxhnk6vx6c01PH7l/Mf54eDy6tO/fg8RMXz2p/vy5O1bt+fg79j9dvBxcn0zvsBXbv/EPZhcXE/OCKab5tgsRmYr8OohKeZ8Iao7/F1kCf6s8/gwiQ/TJLvH22UKu0ik1CBKE9c/OIjF0lkmRVmF0Eh466i6GyLJfefwR/xl5qqKR77Af1+S6s7J1yKj1j0H+ClHPhq5m2p5+ANAF0WRF+XILcQ6BVZwfScqYZRU1EDwXyFgi2f0IihEFBMGfgCjJmvPp6bi60KsK+fT9RhB1t1lV9c9OFikUVk6Z+IhWQB8aoGTCsMkS6ow9GCDLntOkefVkBnKnuNFnhloYeMgi1bIvnkZYNNgHpUCH9F0fbtpXCQPouhqrB7AxFK8oN7OC8c9ignVI+7q+g2Ia0HwGmtidlwfr91GpxIko9jSCyVAeTQ4ojbNjsAuoshEtacvMlCYRo+IrzMCfhzLfq4N7jaJcXOnSVl5cB1W0TxtgzPnDCSYY5dpi4AiA67znWVeOHQJu5wkd4B/WkRJsiWs9zzK4pBAHm3o57nrzxqLCyIBxkN+UP2NzkcuPKSe0/7MAUnL+Im0FMhsClKipByiXsKsROz9aRDwibgr8iKpoqoqyqMM0CmPAOtvziEIBPdbY70SQ7zWSEhcDayaCFPnVbWx11kTARTREe2jI1hTokFjNGwE3WH1YZzGu86xNiUuPQw3z/PU05QHSZDFuFmiBSrC+kUPH16Fn34BwQhX/w1XUjoZfATkqjeuUmpT0FEzqQOB3qDTxFekdxFlt8I7fv3Gr7d3Jb42WN19ViL5y6Nnses8c2iMHgMxuBQmDdYHde8SYfqR1I24OF160kMAFlSgoicb+jbkx0SkseMRJj0FuNeBuuQcMnc6ZyHpiBI25N1SelocEilxv05ZgkpKSvkqH1JzFpzM1MTBQGPJ+jVrd3CUsbmAr2E7ss6J5kWy0PjI36GFSk+22oVookAhOp4rlhFqN4FGgOu39MWUx6E5yEvoJgdHWHypxfpIAp8d/HUgyDgduEk6kHHyHWTogY23yWDtgHPsbSCtOUmXBRjDCRhMzmgLqRVUZke9Xbsnp6HVs+MeswNje6hWNdklE7tkEJDJwoPjJWgQ5x6VSOrcgXmQ5c6zUgKH2YGRKOmXlAQ8zaNYxCAmCgd7JhnoMzBkZd9MEN9LVoA27tXZ+YlSNCKVGDLSNX6oaJBEiE/wR55kniQP2wDdRJgOX80M2bBrjjCjqBCIcAESDkVfQ99o9J18ic1WDjYdgr10T6PjVBU8mCDha8yJeIHgpmCO8ex85518fugMnrYUz2IcHv5GcbSucJ0XUebMBdBLxIQRUdcYQ7KhJEOcf8lq3umineSvmn3YYkHM3ZPTm8lvY1dtFLOBZi8cYcdcSJEqpmK/jrkGvA1goiGwFs6gXmaEJ5HPcXXK3ei3N7ecEE5ANpPoKy6ZNcQTWk0oAaiL0ZuHb8/tS1RksJ3bDAUzg2EafNRzqjxnDsOlu0vAyBm/PwFBIqIHYK4NkMK5y8vqEiQ3koKHBcNBaodssUjRckIPyyPBotyt/xgmsin7p8+9ZZ7GsENR3mcPSZxERwgGrMU5/o/XQZkHxy71k41RazyyrQdc5FrtZsbO3KzmZAizHx8sQlSV9a6zPBISeNzu9OzjRzbUA4T7QVRyHp5sMH8sxNJj8MYulo6GJz0NcEtBqybzTSXovqGcF3lWJdlG6Ier6A/sBDq6Iuf2YZXHcpDgIUo3sPsHffhHotJ47Pw4ki/IisJLv6m0PBP40RE2kjfP8No3dRMulalY0LTZplXIPJBKBWk1bCz5CP/s0jEwTLRJccLYXW057EWMSA/fOd5xzzke9Jw+234e7xO0TDRLtTbasGl5edu2nfZg9q2QBBRlj57nPgBPwmj3gEeNFNAqSMqQfZ0cHGS2dcIevulx41o+IWX9bputlkvYSG5bqeM+TM5Q1l7lp2Pn4dgBBnNwwEMa0AHSlaz8avNadpQWIO5dQ05ZxmQhguUmTVdRtbjz3M+f4xeuMgIbxAFJIEhiA4I0SeZJOdOwMc2aaVGK4T5koDMLqDICCLY93k7aXJyefgwnP4VAmXBycTb+1+hZyZKsplq5Wdwh6UgNSZPYpIJvDceqkfAAAWev6XbEDIG7CzVk88hcM7mirGF2I1eAHBYYUJtKcrZI38FkSNgWwxKvrh9ehatovRbxzGQDtS2xnRyReLyvVBQ/3MK7W8gA1gAgK5zj4HjgVNE9KEOceJ+n3nO+3CWwRFIE8ABDp4N+7J8Y5OnJ1qiKfFN0rcQqLx49I3DTKcd2Cag0WSUonlTMNrgVVUEPPf3o6uPkfHITno/PMcLnAxrUFc2PTUl9g1JEBe6o/zmN1uPlcvj5c/nc+/z5ywvf7ZFbVbs9GOA9Qqf2iAG4PrYIzn/9eDP5OLkYMy+sokfkxnsMHvA4TdmJm4xfBbdAn7U3AECDN77zI0xWRSP/7gy0fSQNFDIFadb/ZUwb5wgL8H5yMbn5vRZ4Cg1/h2UFq4BN8BJ/gZd4XRBjGgieVDnajr8kPw2dw8MNDy/7jQ4Hw8MBWe0KbTYlqREps+NXcodYKh0nz2E1vHpYlp4VsSnvVu5TIoSKPggkWIZzxKl0nqv7Jei7/xWgpHRMd6chhqP2agxIOsHMz3HmtElIL0VVxN4KWJWZQIrl0oDejQUs7XHf3gN3m1sRrjGUbe6Dple8hfuXhRANBv4Z4F0iuPA9vFSMHG9jZFhEMDHzbibeYtrSqIairzx8ornY93dSGCdM88UbEPx47+AD5DcENETrcVGlzsMqyIpQt1fyCR2AP/K5a5Hxdr2xCPg0Fxp7Af06ghu4/mzwTvuHb2fPXU0RdJGwn3bCdmwtbGd5Xx8uf2V/EWQ0zgNtmCjJRKG9LwJt+15S7RKysMtoll2bIMrKL2RQF5vMcxn7w3JFaYLDw39vRPF4CEBGrMDEYhFwFD/YZIu8KMQCdnrwkKdRheH6Kq+ilLsC2cHiGC3Kh16W3wnk+5oeclRYPDvObiC2oOifjMxxe9UbXz2BgPVklKNHgTaVSAjKdZpUGDIrwbMBGk1d8RWkD0J3WCHh5cyfHg5mjPk8Ii1d5F+4s+f2XFQNpLDhKa0QDWGC7jTBes7z6QCYBK6f4y5DkIyXbwdPEBvcNzD2zi2iZm2si5LJvGJgRSIrtXxeACx5Bq2XspsVsgeVLDo8VCpMMzd1I589ydizJquEnk8HsyDNYfG83Tu8HgD81IvfPsINu7TKVa/xcbitY2BCmxrEboj5p5AjRI1gJgacrSCm+wnaOr9wqOk8jzcpo90VCCexx2CVSyud4pZEiRMk/l77pEdbUz7DXOZfdLaUI0QbPSIz8NFruEWdvpQlco19h4mm0syEYMiWA3JHq9URs1RIrTi2zxE4I9eVlEADO+S7IvJK0lFngOPSrntKL+oRUhfNdDyqTBsYEAgzw6c08is0M45KYMh5Jz8qHLUcUViThVMPTnatuIVVFAXatvgKPDUnWsIDEtcYcZRBS7VpkFPjVRTON0ugWxffWkLck+MBtYyeT8dfJOgMO415ZAAuUtFUSt5ihhwAD1FMnBEbM/Iw43y57KQ9kdhEqnbx+bXh7L/sOWDT7VsZXObn9e568iwb3sjL4JUT54Lt5xJsj8bsv2D4EmShHFFZ2hXHWbsJAGKTuUsRAtwF3u5YLjEENbUoQzB9YmWY7cEemuPP5enEOTm9dhQwktSg9yWkHmbJn5UtpJZRkpJuB+xKELHaGjCQIgtN3xm+FC5ZmsyLCFwpdLe65KRleJtxtDrCsCcP/z5KS2HK3JtiY8eh4mKRry1vriUWEVXZbkjY7RGHWhIaHWumU8ICVH1ZNbwHaBwXD/t4ToJUYWUqKSGT/8PZ1Sm8MAL6DFDxFrMWCQj5ImeDjhOd7L8/sK26zmMjyG8rGbCpiY2/X8fsohxA3Zrn2ZYqIvPe3xX+prqFWWtpcDBLfLTkH8uJKE21MuMKCPApLk7cBn4A7gmCAn7/Nn5/4uoUkpYP4OMs7ojeaGu7ym7y1sdrDmSQpXriDynEAebJ5GyCcBBrlaxiZVX+DXYhoIMBJt4mtHBNwdBIXeLaMPqyEa7ErBVa351WnW/Ko/UikZUPVC3gD5tJ5a5qDsrHsjJ2+66OJ/yAsQIuWNoTQ20F3e1SIB4kz5YJLUUx31b4Qw7+mqsYdPWP96r/9k0rIN+SOJ2IgdAuqYjl+PWbuk7pDkDjE+fdSLWAK5ScNDgsi/ODDRjdFwrKYN0eeD7Q7D7EyjrPfTeBOVG/ngSmY0UG6QnA3503r1+/fI08bNeFtalAoYmOwX5uDga0fUMeyN8dXUfWBmdwVoCBwSz2uquY/IN2NxHdW0+XeQrahgsEaV4UoLCaaLrXbTEsoG9+VC0ou9E3NYREk7dNXbni1ZtFlxLKLUPMxgWWAf948u7kfTi5GN/01NvrT6e/hGcfrk7OiQHBqJ+bvmeer9DVxGrRgP567k9A7/ljBeMP3rz84ZUZs8WKScrqyIXCZfLc5CP0ICUM0HyqL1sFYBctwX7FmInnU25NQaFEaoOxJBAqTQ2SfFGlHmEa4JbIAELPefm6/5aSPYSDrzmOYkwjHrTKGXGZB8q/cC4TWkyzYQZ880r6rVldFQMwESOw0/q+XdsA8/kyHQ7ezKTjO3c/f+33yfkNYoFOKuIl6QzSpQqzKo+o13F/eIyZcdNJRnRkpQNo9ArmH61DvdrYTamterUBvKjQjDEiXDobYmYjqRSJW9birwxBcqQbqhWgG/ArsWZStsRwYlGVyEue+z8Y2VIvUnbL8aHVaGSWq8HmAUwyKvvq6KeuR65vBA4OdHekA8UGYL22WWMN04rcPK5IHKnhScirudHWwgYm1rKhrtbhXlmNP0BQbVoJx0x8rTxcm+ZKYi+FPq44cDjqDoPmQE9yZDmzXsToK8lIShcwBmKRO5mrkj3V/cX2/pxsaMLYVh/rPx1wB2ISmj+DLYXNzG0jIco6PAWfVqaZkaVshxWM5IRZi8d32XBql9cBKnvXtUO5WNdHQ7t2PGw6GM6kBMC3BFWuLQWrpgP5+w/KGFf07k3HLlfRT7gGq8L5h0w/IQDkEbcv/7m1ucPpH8DsS17c94CzynuZfGRcLKNG5ixlJNGR3RG0zvTtMRLIJIL5rbDMp7XuNHm58oPhyxluN8/CzQfmvhePozRazeMIGw6p9cuZlYWlYZATADXa4/vSbLwsyrNllnNytFtVItQolYKZxiVmXDBJLNFTjYfsVpCNi6+xKkc2IZ+R6a3wszMNwCRfLfcMfZVyb4x8DyN6WzixWqzBNnzhbH/9BnarxajMNlTog7XyzFlBsQZqJXjgwXOHoKWOZ3v48qXmS15iWWP/rQ7DwLSh3YDa8XA/jhyjUn+3+4FkRP9jUgJSLtkeXx9lwhTXFx4BY2bykAZXfQFPgxsIejCawwpLrxB8/QQUblQECYICA+Eoyf6AfkPHXaK77f7NWkCtXr1tAuWpa9rabDtC8FqV63Q52l7jm3Dy/uLkfIz58iVxam5UNFR3ERVobdZUiVQGIgMBnWeYnvU6oCDsRimfuUheneo35DWfliBnp67FTdahvFSdBjO/UfTxPbMFmzRNecuqTeh4zzBFw/nwnONxhG6c1y4o5RwIAVWcizEeb3uCmx7gAZnGvps9pYaGawRkuYdZNrCvvuUvlB5siQ7Ui48PuWfD3IEZKZ/Frg9ogqAjQR7DIDlmVUCRatY0DZFwIsNgA9wN6YwRH20x/QhVLcBNqaTf9DJ863UAhh++yNfa/7j+pDjWcEHCnyYXZzefzsa/TU7HPcIGJRadlgEjugF0nuC8qdHxDIulGu/5wrOmql7q+m6QBHHIrASyn6+GBu/0KKxpPac/eASL+QzmNrVPV82U9xUlaO721Di4LnxkB63rP7+RIY2+AZ5kC1Y58HqeJQsPxbxxoqou+lJ1L17Yc4y1DX0K9MBbFE6inoixMbE7bS3urYvjUVw3utcTbheISSm8Zb3bDXHlKXcPdPAo5Lmr5V/gEU2GBpd0DCAvwfD2PHv+dhe5bNO66wzXSxGfqMg9OFwi27PZ0VzJd3rN7bUwaInRKzoRGfCPNwWuo/NAEjJwCD5aRV+9ftA3uOiwNR74u4OGUbeOEtyfElawzkHd6cH9znq0mma3T1yU8dXVpyu/HV2RnB8AvT1EZPvipCDavZrVbfpI5I2Qe3dPJdB4VMuH2LfF1Um3Pbt9uwGAFlO989CUxSedm8lIKVrxQYk3VaB0SiYTvyfX8liSgzVDD1XYU8QGDaf66E0TAoY1IrIyz9JqerfIqmFdR8fzshkFdHqFJ2zxVAEeaLBDz89KGWcma+Hm9BIQqVTRgkLNwhNvNLb+Xl8C54CxQ4mFv+u00iar12hqkICEwkyVO7ANo0NHDT7wLQKxOGnQx6JlPabM6LZtv9OrT9fX4cXk1PXZc3SHT502UpzhlzWpVfYWHSRqSDU2EXoOpLQce9RRf99i6DmwF9VBYXko9VwI3unbTqUu8TT0kA9F60VuOWBoPGT38hI80UpvcEMEqJPdLAZGID23nG5d8mD65J26xjHkJY+BekI2lu24Cb9tHExsG08LIFIlwlIUmOuplVS/eeKVxpi6qsB5RrE1A6SS2xS9bvSVgsRqj4YxqZ2p9XjWPSyzzqw2ppWUwRfIxTWNrZVu5UJapNDmbNsQbRYs78h1dIYy7Pmb4/jtNvZEtY1NtiZGeZ7bWGMVlE1y368ZeMmagk9u7lIinTTSRWh8ahlZw6uPlCJ7oU8uD0PQs6i893ac0vgND1HwCQ2M9Is2/bpKkERyezfPN4WsMkQjYQXiAIQS5RjQAzc8N1VURsB3ClRkGy3/k0xOd+rGCeYF8GnpzvaiZ7bukuTsFdVGnxbGun5uWk/RnW1fDXuj1laIRx6APpfac9hyt4yTNtvuob92omvU9HkmrR9RLVQU9iL9yE60ERbT9X0WDYiLeXWax/L4qxiG0WRKDQZiGiGazZk1NY+TgDYMCRhVYAUpfcWCxLL8aoXpR+iwC/WeoYj5sz90PH5Yb03/m5Ef0C5VhxulPlphf4mhW9y6QF0MV1FhyKYUIfoGI3Jaes48Wtyn+e2Iiq9x3bhXI7dL/gCpe54u2v+11ugSfggkoLzISuSbypNG/mCPld+C1Clb204bj4cnycGib2VjnyJYKTqSlCUnOWXaHf1YtnXq2aI2JQdX0cLvhAVsBIJLDue5XNbL4R+0BZNYuiQrEg/wjrnZ1MUSnenwB2BqteIYbkdOpmTCdqKYtDe8bWu2sF+wjmVEH7oJsEilNFwoUP33AvOPnm98kqMNRpJhKsGhdsnuXeJxA1pPDVcDMIQbHu5juetNaSOocBTfYLaKR+GjchgDruGwoKNQ8LeG2kYbxWNLjb0CBSapxKr0Go6dFkfoBshZeaSJXjgDH1anXpwZuKMd6qycYnPa3oZwG2L2QN6APIb+LpZ+1o+0vWM9lVrab+iBoUU4TFPYunI6+9Z0fskPbC+coC2axVhxQywQb1br0rOm4uv4AxBh7n7OXL8bUFMj6JwlA4MdqSUqKvJt8vR7xR5JJiwxe4JJ1hXnaWs8z7B7teDcsoXalRJPUoRyWVoT/LEjqLJDpqBxwpks+pJJl/bUWtKalFSQOwQJoVamQqxBar/2bTVTE2t4sF/66O8rveiiotWnxYqoVD3TVUGeHGkL0d/HnZIJv0O+UUVUtklTLo4CiVIbAlX0WPOt7U4xH1KO6xGrQu3Al21Vc9QL/z8O+lQbMmwU2xR1AFqmcDu4WftEhtbTu5AjRFKkStOVIj5sgHSVoSnrspFMoNRqXYj2pz4SzzyXSZ1mNsUn/NEaknVY9SoFHPnnXPLP0u2bMff5Y0jSfWh8EUzjOGuLdwsBmz4KFPKhPAPpYaYAm1J4gU9j4ir4ygvCd0o6W1lctHsUQNyjA3usurRBkkgPLpWMlSrGZ0PnEGHiJSadmixLmWn3n/ozFGgZY3Uwb2R5hLw+y0EfguAPURBZZAP+nkVSFyQM7G9VWEuuaEBhKtIuJDlkUTIR+J+2vV2XOZDJTUHC+tFg5vO5dDsho8eTHxoAuCFt7CeUteoamX2HJgyFoj/JZRx8+/y5pHNunz8H+DPFv7PnPjx2e999DsSanWT3oXQmKIIFd+6zOKD/6KsddDqev7GgvpaETam6VOKLGp4u9Ek5yqfxXOo+4/dGh21fcpLHKWAL1Ej3+Iso+mMigGJP8pLa5PZna572AYxvuJ9ceZoZzF2Z+WsMhbuw3KyeelwFIJ7f/LoDRfyQ1XfhZx9HYYS+/xSLTyngWHwVpXGGvwtPhM9n5Lfgqb9UtTv52s6n7kvHwoS/1d97+v/9nt/Tv+FH+G4y7zlorxXMqkbZSEaiRrDq/6xZxDnZj/VHNgMEKOFh5xjskpHx+nJyOabnMDvz+fXN2adfbziPiV2O+9Y03sPsLvLqfb7J4u4JaduqFa0yRrlh6OOv6wTEZ1fwSn39Y8D5bjO+oV7hnAO+4VOU9ICnqqo19SLWqyctBSp3CHVAz5DG+ZqqU4b6C6vBBSoWrkfuEsS7vxLCLD9qf4HM/8vnbNHmNc+8e+oM7J7jxVERw60wT0tFdFiSDkllpuBC05pPcuRZ+sjnN0i9yvP56lN7X/B8EYWYROz6XTmrViiqdb5CEjzg8xf1vfoek98Nh77usu3Mhg3T73UnW8yvM3CdDa/wlhGNjzJopb2laePseguhLVNSR7Xr9rSsW1obx4r4EExP1oTmlT4apI4/4beGoEO0TvhrQ/UBahszfZ59uD2YaB3N0ZRgFFShUil2ALAPkDYgqCWoDSYOxFsyXJWeNlYVOTicnJ98GF+HF5/OxuzSSMcXWuBHoGQmpc4oezt2/O7yv5y+0iDph7dBIWugj+RmIKtnxFWbVF+Zq5pl65NTzQXukE6aJUwW1d+y6aovN88V9L6z0qy1ZM0Ku5pDOUTY3auu9+3pkq/OhnUFZidgg03t8jf1VCbt6BNgjW/w7BXB5F3JLzM3DHSDNQ1ONFeA/CGVJMMxKND+RLFUg1hxshQAyLSpSj7qSr0GXepbjvnZhDCSo51JATlcoDmshUlAvr/cJqsIzDvYHJsVuDOto3aJ+tAD7Z2CTpfIfXQi+1zSGzzhcTvCT1X7RnusKAkVcA+/qUDEcXvqWz4j193ZXukJ6IHHN0dkL6m+/Z1d5ecEvrcbrUBnv8HOfjIS8L3D8Zo+nSDIuWZrJYwojYTFa3iolvx3rxmQ6zlGaRdn9EBIJdWjShiZGT6WnhIJ+kE0yppTzKN5csz/jDRIVjWUGTOSS1hmjyzS2HE2HmggDY38IEwp3ZR3IwyLStJsA+Simcj1rM6zYLCUWYhWZPJQkctvA5fah44a0rR8/C59SGOEIc0rDHHThKHUo/jVP/zuhkdbCe+ASA94/sD3/w80MgPC'"'"')))" \
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
