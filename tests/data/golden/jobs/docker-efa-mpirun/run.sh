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
  python3 -c "exec(__import__('"'"'zlib'"'"').decompress(__import__('"'"'base64'"'"').b64decode('"'"'eNrFPFlz20aT7/oVsw8OABuESMV22fzCVCk6HFYsWWUr2U3RXBRIDCVEIMAFQNnaxP99+5gZDA5S8veyroqIY6anu6ev6W5kVeRrEYarbbUtZBiKZL3Ji0pEWZZXUZXkWXmgHxU3m6goZX1fRA/6ZrXMqlTf3KT5Ql8nmyiOC1kaMH+Veaavc/O0kPVVmW+LpbkvZSqXlbnLl3eyvquKrfVuu9gU+dJaq3wwl1WylgcrJLZ62CTZjSb0+s+rs/Dk17OT36aX73xxnAFJq+bT8YGAfzR3maeIDbIliBZLDWRaySKq8oIGnidZjAtMRLXdpHIGSPpC/5nTkHdJbF4nWeXXXAqmV/evj/namjDNYIVVtJQdqPz+PFpWJbyLk2XFr4CQ+cHF8cff4KlTxOtokKyjG1kOsjyWg+WtXN45B1cfPl7D+6O3L9++Pbg6vp6eXZ6cwYPXw2B48PHs+ORXuHkF19Ork/D9hxMENnp58Oni+P378NOvF3grfvpJ/Dg8OD75FJ4cXx3/Mn0/vf7TF798nJ6+Q1ju6EdfjF69HHoA8XT68ezk+hM8fin+EW8Oppefpqc0yklzxxdOjPtb4NV9Uiz4Qla3+LvMEvzZ5PEgiQdpkt3h7SoFUZUpDYjSxPEODmK5EqukKKsQBkl3E1W3Y2SVJwY/4y/vZ1U88AX++5JUtyLfyIxG+0Jmyxw3ceJsq9XgDUCXRZEX5cQp5CaFfXA8EZWwSiprIPivkKBHGb0IChnFhIEXwKrJxvVoqPy6lJtKfPh0hiDr6Wqq4xwcLNOoLMWpvE+WAJ9GIFFhmGRJFYYu6MTKF0WeV2OWrCaNl3lmoYWDgyxao+zkZYBDg0VUSnxE5HrNoXGR3Muib7B+AISleEGzxQvhHMaE6iFPdbwWxBIsCa7e2hSaifpTHo4OaYzTmgg7L4tMVo/MRVkI0+gBlxYTkPczNc9pgrtJYlSSNCkrF67DKlqkXXA2+kDNAqfMOryQGQiQJ1Z5IehSJBnZvQD/dBiTZCvYukWUxSGBPNzSz3PHm7f2CbQT1sOt1fOtyYcOPKSZs+FcgJ1i/GRaSpQbDSnR1gJRL4EqGbt/Wwx8Iu6avciqqKqK8jADdMpDwPqbGIi/Hedba7/W1ba5VYYOsMSHJNWHsC1ERo0k0oJjYDbsH1Bl4d8mjZbZlrhxsNIiz1PX8A1UMotRaqMlOoH6hY8PP4YffgObA1f/CVfKTFhSAMTWGqQN+gws9VzZf+AWWHb5FblVRNmNdI9evfZqPavk15agOs9KZF55+Cx2xDNBa/gMxJIxIBh8LU3vsyXmkfIQsESvt3ARQAMqsNFVA70m5IdEprFwCRNfA/Z7UFf7Di5T9lOh+IimLmRZL11jl4iVqG0zNmWKk8rQqYc0nC0YiyTJH/BYCW4tmD3CZKkGSCUoE2GTr8JVtCiSpatQGjewAELp7T4cgX08CDFxHbmK0MNIdKSO17HZM16H0FeXME0tjrD40pjWiQI+P/j3gaDM9OCmWEAO3uzI42zwIbTZZrBtIDRNDVDhjOLLEqK+RBYohR0ua4AshEZJ++kygGrCeMb8wFIKParmuBJdh/wxRQy8OF6C1Rd3aPhTcQveOcvFs1IBB8IgQFKsS0oCnuZRLGMwDoXAmUkGPigD7HhuJknalRTAGOfj6cWxdg4yVRgy0jV+6ByQO4hP8FeeZK5iD7vgfibMxi/nlkXYRyNQFBUSES7ArqHBa/kIgz5sEA5bCxw6hnDljlZHUjU8IJDwtWgiMSC4KURDTJ0nflLPB2L0tK14FuPy8DeKo02F+7yMMrGQwC8ZE0bEXWsNJYGKDXH+Jatlp493Sr5q8eEoAzF3jk+up3+cOVpH7AFGvHCFPbSQ89NCxScZlhqItEGIxiBaSEG9zQhPIZ/j7pT70e/qtSIICVDDFPpaSuYty4SRDio/TbFm8/Jd2r5ERQaa3BUooAyWacmRL6o8ZwnDrbtNIDA5Oz8GGyKjexCuLbBC3OZldQX2GlnBy4Iz92wThP5vl/0hH9LjdJsmp5dv47b7dHdx0QSRLR+4zLMqybayDSjKHlzXuT9ycLU7wIRgufgKaAmSMuRwM4fjBjus0Mc3Pg+uxQ0p9/odby1mOEjtgjJZ76anqDofcziJ3R+JBfAZFxzQggL0umRbZoIkPVG5cdwKS+waEUEhg9U2TddRtbx1nc+f4xeO9uQt5sDGSlJAQJCIzLbrhSwUpWGLTOIdDUChxLiDgc4bQLVNJ9jN9fby5vLk5H04/SUEzoTTy9Oz/5o8K1kwa66V2+Utso6sioprbC54jeXY0hEeIK/NPd2NmKU/+1BDdYrsPVM7ygajHzlLYdZynRcPrnW469WefRqTJusEQ1GdSgluZFXQQ9c8+vh+ejG9Di/OLvBc7wEbaCrayG1Jc4NSRgXKyX+fRJuz1Wr8+XP53P38+csLD0jHiK+OyDDvcojx9iEDcDwcEVz8/v56+n56ecbsX0cPyOM7PJXwOsqm4oGVNhRFh18FN0W+3bgjADR67YmfgVidg/hBjIwRV1aU/BVR/R8W2UgjbMv59HJ6/WetxhoNb4/5h13AIXiJv+CzeF8QY1oInlQ5Orjfkl/GYjDY8vJq3mQwGg9GFFpotNnf0aDDQzEaHr1UQtlIRCDxfPTGq/tV6TaOguXt2nlKFkHzB4EEq3CBOJXiub5fFWXyvxK8usnk7PUWuKpfY0A6B5RfIOWoAWxtoyrikApcXyaRY7ny8vuxgK09GjZ14HZ7I8MNpqtsPWhH7bv8RSFlS4B/BXhXCC48h5dakONdggybCH4w7xfiHf6XVjUihnKMT4wUe95eDiPBRC/egDnDe4EPUN4Q0BhzmcsqFffrICtCMx5CKrDOFA+Kv/KF0/S9m22DgU8L8XEW8K/n3IX7n90ncRLNhoO38+eO4QjGcTjPRIp7VAvHNULEd1e/c1ALTgXpQM8cwSG0MCEigW4GiMqZELKgZURlnxJEWfmFslnFNnMdxn5QrimVOBj8z1YWDwMAMmGzLJfLgDN9wTZb5kUhl6DpwX2eRhWm9Kq8ilKeCmwHPzpZlvd+lt9KlPuaH2pV2LxmLs5CbEmJCZU04PF6Nr56AgNrYnQ0SjkAnWwMyk2aVHiaL10PeTRz5FewPghd8FkeL+febDCaM+aLCPPSsyL/wpNdx3fQNVAEAE9ph2gJG3RvYOGL57MRCAlcP0ctQ5CMl9c84SE2qDew9l4V0VRb+6JtMu8YxEYoSp3AHAArmUGfXPaLQnavE8qDgXZhRrhpGh0skozDfwoO6flsNA/SHDbP3a/h9QIQTF/+8R5uOO7W54kaH8FjhYVJU6njBOl/NETwSTvUMywV7NN6HUaTQkUU9T64raC6NxJvmDZLvjeSz0CNrA2fzg/X60PeupBGcXqPj+NW3jkpgdBm1medx9tUKiNEkwGOQ9L9lFk0I6QpZnN5VZU5tCAQZp4V/NcJUqIMgWf3mHXau+8aR6OvGmuKJOrFcYlC3sBWwdk4HtMriPNFtIIHZBYx/aAyGJZw1okMltAPG4jbf+MkyAXRbY7BfXlZ8ncMVHH1EOEneeY8nS6Z4BFLtOjLYFMinXKhAgtWoRbb1RjV9JRkmIkCTuSrVU0TRKks4lhGG4N1XJYheNxYxwOPsByG48/VyVQcn3wSGhgZCHA3CpKPBZxnZQeZVZSk5FIAqxI02zghCykKDMwdHnmVirYxbaUYUQkZdTUIre3cnHKflvlcbMvDzTJRpQVKx3vjdt63r1xCKVNWFmfomLj6DcbMXK575ITciFS7ZTNeJM9WCW1DsdhVJKNAd8PVTFMpc18O376uj2m74ttexEB6SqoSHb16Xdf0bgE0PhE/TfQIuMKtpMVhW8SbJmB043Q4wbIyRAAw7C7Ewq/r/DQFmmier4CZM5PFegLwg3j96tWPrzA+bFZFu1ygEL1nsV/biwFvX5Mn/kGYKmoXnCVZQbSBfYnd/oqfd9CdJqO7xtNVnoL4cyWb6KJAvTHE8L0ei+GxuflZj6AyztDOdis0WW3qgo9bK4upeSuVIWHj+n/AP666Oz6HU97Zta/ffoLjVnj67uPxBQkg2LiFHYPl+RpDLmxfCOiv6/wC/F48VLD+6PWPb15a/CkkxIhlVUsFbpPrJO9hBlkFgOZRLXYdgG1bgX/Bs4PrUSJMQ6GsZ0uwFBDqnAiSHIJ7lzANUCUygOCLH18N3w59jYNnJI7OWhNetMoZcV4M4ixOPMKIWTbOQG5eqvgtqwtXABMx8uGd16xBAD1fZuPR67kKABfO56/DIQWBQSwxWEO8FJ/BulRhVuURzToajo8wjW0Hi4iOqkgswIYB/dEmNLvtUvJ53N5uH7a6tMrZdfPDP1Y4DYJGw2yLkW4poS+/QlCFTQU4AA/SRVWi9MBJEM909DTlaBSfNEZM7PLvl7yginFnhr6eOJ4VKR+YidyCUJVEYU0J1it7+wUo2OIa/YRWRfKYDFIdfGWjiUOY0Tw4U6giU/CV165QZRC1u7hN9u5wrSJRqOIegsyiN9CsBGYhw1VWu4gxNFEHhF44DKLBz2Sha9x6/os9ACgK6gDZ1RzifQfkHtQUOA+rz9QTYNVCFNsUZFVt1+vQliBj7LjcyLerEpwdufUFFqPLRw/gJjfZPT92zoJGl0w2Eo3f2XU4Pb88vjjDdCRuLqZI64RxdRtROWO7obx9GUgI3Yo8wzyh2wMFYbcKX0AHWPcRh8d1JtViL7f2ULRR16uTTagu9SQ4erZy6t9DLWhmmgpaVeQYZwK97jPMFYD3X95yTUKhG+cqyI6WVK9gBDzdbXMhJQZzu9ttVthjNeZWK1M0V+evemN9NLF36nIdYTi/tzFnxeBMr4K+RijqkqGgPVOD1Tgewm9bjRgozjKjScpWL4HuSoalLIBNrmtq/sN2sw6tMXN0NWGOIGyQKCQIk4IJr+bWimWY2y72iXdvJGnSNNwwhFhyZsEwAy3jkFWPnkXlndsJF10VL/rijyjdSrqmGEB2o8i+Q7pMbm4X+bZQeThMT6w3Eeo8RR94DLNESqddCLi3r3cDLRIIGzCQz85M7syJE4wY8Clw+lH07NG+gec1as++1SeiVzFkOfPdO9CUEwixM250dKnf0DSS+IL6Ar1gmYL6uLsC9kd4bjS6Rs2UIo2S4pG2EljrIdVmjSatZzNjsl4NusEMqW49z5JOligjmqTENWobmCgxNUr9k6S6qsvSDjeNGafZc9SMv4dj4fLDWnm8b1YcwC2A2LaZgAtf50BdniVLEO4XQndcNtsQ+xXWAQZhuyYdPSF4C7EmPTmPQB8gdIVwMs1vJlRVQNbzrNZhjc5DGLMqcjFZW9udniMaAQFlrBD3fFu56+irOwyGI78mbNAhrOdw0RE26ySnxIxUn9bD7q1N5XaOV4+dCvW/dVKWfGpR52ggwOW4t6bWw9MfvtC88HphFVEC9kYt5zqcr2Z3gq0lSaxymGvSanjHAmlbc4XObPwG5FLvOEbJ2E9MQcRupti8Z7XrDIaIpcQ6wYQaqwNMBYFvrSGsozuJBwrXs/pRu2AUG2YK3MxBk+uQjFvQfL1cDcCySTBWmUt3Roqgq+N8AwxSqwT3aJzhyGKdkNhWIYy/vzXMJns5Srr5IvRsMEkl16XbKl0biwKgNFUuOZAXYuTB7tSbM4foo8cLlTMcTupt2SdQdHMDJhXmO7Ch1iPjMb2WqR43mISxaNOdzebf2nkEpLYr3fgURCKLozR1abvj7XpTug20vYCalyVZGDi+ZY7XD6htwM1RhIGB9hnrib52l+38XhNHVui62LZyQr0momkedjko14qSjJHcoS7dNMeT/Jbalg6BPxvyx0+xHxg/UGaObEivszNOrUGU8md7jAahVqZSbsBCv/KaLqVmVieR1mNpzIcAL/q42JjTEUV0oK4d2KJMTkwQ5z0mnUoIv8OWUToz26YpZzbBetROv4oearltBt8sh/xxScA/7qwR6IJ2z9R/R8EQ3VErYGpExZbXMprFp0NlElXESLkODiD68sI6qGtlhik1UGeG/zYNZSxHmfJJ9lB8wm3aZKswL64MFOZm0bp/syzn4iEkozy2PiExqM27VrmxbpMvGhSKFDAg2qbY01EQA+iEyT0vyFlPZynxnTaqjY4lDFc0QFS3UXOtOiehOGMWV77BF3fyYZJG60UcCXw2FgOEiZd49mxLH2X6nH+Z3k2MSbFswDpJoH2rtkgZA+7eJLaoASrrUOcPRs0Gz8ZOax44FFGgoyAjoKoVxOB/NSPdOitBwS7SYz0azSlGLHVMo1TKrMdiiXBD0tEn1BGbWSzLAZhvRaxui8+fS2qu+Pw5wJ8Z/p0/9+Cx4393DapBghLlsTroOJd/TE+nuiaGbpYuTM8FNQgxguozAphzdm5N2PWlgioYgvDWmPjcAGx6Z8cgBkoKtFY2G7Sf1u/5DTXBubj+fQ9A/Kzie6C1yqO0c+73V1U9yrjE8qssrY7EPjwRPnf87cDTfDyxu1WyvxO204hJPZib+5fhGtUmBoK/1Z8g/P9+6/X077sI323mPqesbY2w9UUg2t1GvrtBQ5xTwFV/8RggOIKGU2Nw4xPr5dX06oyeA2X280/Xpx9+v/aF8vyTo2GDhHOg7DKvzvNtFvcTY0KRTv7FWuWaoZ993SRgovrSMQqaOyK6XX16t18hxQHfcOcMPWBSdWXCbGC9c8oJU2YxNCkqy+LlG/qac2w+bw0u0XirAuHOJJYW7En30xfv3+6iwmDQ7mh0dYfTI81jURHDrbRr8RG1wlAJPhOW3cKYk78HyLP0gRJa7KxU96X+7gqOAJIT2zJ2vL7+DkaEv4rt+9jEsDbgdrn6Xn8S4PXDoY7xno9LmuA8vz9xbTfj2nnrzjJWn63xezuGttoRO6jsoEN339XjaS/1bjeBYNmFugnbW92EaLX+GKy5z8duEnL/TalmsOpbUQ0kwKdBoSpeh05d/wOu4wcAnAnucKFH5wwneLDpMu+rDdo1Yf87ixQdzrWLM/WWcDaovSfNAod+qhLx9ElEq4l9pT7AboVVfo95YAbXOrXmwgNMViUIneY3FZIWtvUt50aa6Hl98qPWCMxudJYP6LCkhGgdgXMH0dmuIWjsdJAlur2TJKugWrqSsmM154reYD37ZoIfoXvWeND/ONTAXeykJAVwUJ7ptDBxnL3jtf2AGfhh4oT8pZ473DtVNRF+7zRie++80d55dMz6/uV4I5/OEBQre/ShGk5pciyIY08TnZLcdgYDk9kQG3sHdZUCYtekevBVkG1XLdi2KCToB9Eoa0mxG5HUmv9MDEhumKbMv5V5x24lFJF+q+K3EEIPOraKH0Bbui1vJ5hQUjx6FKKDoQOXE8WzYLRSSdtOcmegGeh1V1FhCbVaEaEe/m8jwhDXCEOiNAxRjcJQWXQItAPsv3VJufAO2HYPJ0M4GP4f2gkOig=='"'"')))" \
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
