# compile_plugin FILE LIBFABRIC [FLAG...]: the plugin of this folder as FILE, with the net and tuner ABIs of $NET_ABI and $TUNER_ABI.
compile_plugin() {
    plugin=$1 libfabric=$2
    shift 2
    symbols=$(mktemp -d)
    for abi in $NET_ABI; do echo "PLUGIN(ncclNetPlugin_v$abi)"; done > "$symbols/symbols.h"
    for abi in $TUNER_ABI; do echo "PLUGIN(ncclTunerPlugin_v$abi)"; done >> "$symbols/symbols.h"
    gcc -shared -fPIC -O2 -Wall -Wextra -Werror -I"$symbols" -DVERSION="\"$AWS_OFI_NCCL\"" -o "$plugin" \
        "$shared/plugin.c" -Wl,--no-as-needed "$libfabric" -lhwloc "$@"
}
