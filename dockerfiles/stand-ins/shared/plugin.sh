# compile_plugin FILE LIBFABRIC HWLOC: the plugin of this folder as FILE, with the net ABIs of $NET_ABI; where $PLATFORMS is AWS also with
# that platform's words and its tuner, of the ABIs of $TUNER_ABI: the real one has neither without it. $CC is gcc, or tcc, which is small.
compile_plugin() {
    plugin=$1 libfabric=$2 hwloc=$3
    set --
    made=$(mktemp -d)
    for abi in $NET_ABI; do echo "PLUGIN(ncclNetPlugin_v$abi)"; done > "$made/symbols.h"
    if [ "$PLATFORMS" = AWS ]; then
        set -- -DAWS_PLATFORM
        for abi in $TUNER_ABI; do echo "PLUGIN(ncclTunerPlugin_v$abi)"; done >> "$made/symbols.h"
    fi
    "$CC" -c -fPIC -Wall -Wextra -Werror -I"$made" -DVERSION="\"$AWS_OFI_NCCL\"" "$@" -o "$made/plugin.o" "$shared/plugin.c"
    ld -shared -z noexecstack --no-as-needed -o "$plugin" "$made/plugin.o" "$libfabric" "$hwloc" "/lib/$(uname -m)-linux-gnu/libc.so.6"
}
