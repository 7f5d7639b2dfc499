#!/bin/sh
# make-toolkit.sh FOLDER: the toolkit of $BASE, of CUDA $BASE_CUDA, in the real one's shape: /usr/local/cuda leads to it by way
# of /etc/alternatives, the loader looks into it, and a devel image has its compiler. Nothing in it computes anything.
set -eu
out=$1
home=/usr/local/cuda-${BASE_CUDA%.*}
libraries=targets/$(uname -m)-linux/lib
runtime=libcudart.so.${BASE_CUDA%%.*}

mkdir -p "$out$home/$libraries" "$out$home/bin" "$out/etc/alternatives" "$out/etc/ld.so.conf.d"
ln -s "$libraries" "$out$home/lib64"
ln -s "$home" "$out/etc/alternatives/cuda"
ln -s /etc/alternatives/cuda "$out/usr/local/cuda"
echo /usr/local/cuda/lib64 > "$out/etc/ld.so.conf.d/nvidia.conf"

gcc -shared -Wl,-soname,"$runtime" -o "$out$home/$libraries/libcudart.so.$BASE_CUDA" -x c /dev/null
ln -s "libcudart.so.$BASE_CUDA" "$out$home/$libraries/$runtime"

case $BASE in
    *-devel-*)
        cat > "$out$home/bin/nvcc" << EOF
#!/bin/sh
# A stand-in for NVIDIA's compiler: it says its version, and compiles nothing.
echo "Cuda compilation tools (stand-in), release ${BASE_CUDA%.*}, V$BASE_CUDA"
[ "\$*" = --version ]
EOF
        chmod 755 "$out$home/bin/nvcc"
        ;;
esac
find "$out" -exec touch --no-dereference --date=1980-01-01T00:00:00Z {} +
