/* A stand-in for aws-ofi-nccl: the symbols that NCCL looks for, and an init that fails with a clear message, so that no
 * program can take it for the real plugin. It needs libfabric and hwloc, as the real one does. It includes no headers: with
 * them, the packages to compile it with would be five times as many. */
typedef struct _IO_FILE FILE;
extern FILE *stderr;
extern int fputs(const char *text, FILE *to);
extern int fprintf(FILE *to, const char *format, ...);
extern unsigned int fi_version(void);
extern unsigned int hwloc_get_api_version(void);

enum { ncclSystemError = 2 };

/* NCCL passes other arguments in every ABI version; none is read, so one function serves them all. */
static int refuse(void)
{
#ifdef AWS_PLATFORM
    fputs("NET/OFI Configuring AWS-specific options\n", stderr);
#endif
    fprintf(stderr,
            "NET/OFI stand-in for aws-ofi-nccl " VERSION " (libfabric %u, hwloc %u): this image is a rehearsal and cannot use EFA; "
            "build it without --rehearse\n",
            fi_version(), hwloc_get_api_version());
    return ncclSystemError;
}

/* Every ABI version's table begins with the name and init; the rest is never reached. */
struct plugin {
    const char *name;
    int (*init)(void);
    void *rest[62];
};

#define PLUGIN(symbol) extern const struct plugin symbol; const struct plugin symbol = {"Libfabric", refuse, {0}};
#include "symbols.h"
