# compile_plugin FILE LIBFABRIC [FLAG...]: the plugin of this folder as FILE, with the net ABIs of $NET_ABI; where $PLATFORMS is AWS
# also with that platform's words and its tuner, of the ABIs of $TUNER_ABI: the real one has neither without it.
compile_plugin() {
    plugin=$1 libfabric=$2
    shift 2
    symbols=$(mktemp -d)
    for abi in $NET_ABI; do echo "PLUGIN(ncclNetPlugin_v$abi)"; done > "$symbols/symbols.h"
    if [ "$PLATFORMS" = AWS ]; then
        set -- "$@" -DAWS_PLATFORM
        for abi in $TUNER_ABI; do echo "PLUGIN(ncclTunerPlugin_v$abi)"; done >> "$symbols/symbols.h"
    fi
    gcc -shared -fPIC -O2 -Wall -Wextra -Werror -I"$symbols" -DVERSION="\"$AWS_OFI_NCCL\"" -o "$plugin" \
        "$shared/plugin.c" -Wl,--no-as-needed "$libfabric" -lhwloc "$@"
}
