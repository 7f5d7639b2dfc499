/* What the preflight's all-reduce calls of CUDA's driver and of NCCL, for machines without GPUs. NCCL's log says which
   network connects the ranks: FAKE_NETWORK, as "Socket". The rank FAKE_FAILS fails as where a peer is not reached,
   FAKE_KILLED is killed as it starts, FAKE_CUDA is cuInit's error, FAKE_NO_ID lets no id be made, and an all-reduce takes
   FAKE_WAITS seconds. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int ranks, rank;

static void say(const char *text) {
  const char *path = getenv("NCCL_DEBUG_FILE");
  char name[4096] = "";
  for (const char *c = path ? path : ""; *c; c++) { /* %h and %p are NCCL's own */
    size_t end = strlen(name);
    if (c[0] == '%' && c[1] == 'h') { gethostname(name + end, 256); name[end + strcspn(name + end, ".")] = 0; c++; }
    else if (c[0] == '%' && c[1] == 'p') { sprintf(name + end, "%d", getpid()); c++; }
    else { name[end] = *c; name[end + 1] = 0; }
  }
  FILE *file = *name ? fopen(name, "a") : stdout;
  if (!file) return;
  fprintf(file, "node%d:%d:%d [0] NCCL %s\n", rank, getpid(), getpid(), text);
  if (file != stdout) fclose(file);
}

int cuInit(unsigned flags) { const char *code = getenv("FAKE_CUDA"); return code ? atoi(code) : 0; }
int cuGetErrorString(int code, const char **text) { *text = "system not yet initialized"; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &ranks; return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuMemAlloc_v2(unsigned long *address, size_t size) { *address = (unsigned long)malloc(size); return 0; }
int cuMemsetD32_v2(unsigned long address, unsigned value, size_t count) { return 0; }
int cuMemcpyDtoH_v2(void *to, unsigned long from, size_t size) { memcpy(to, (void *)from, size); return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuDeviceGetPCIBusId(char *text, int size, int device) { return 100; } /* no such device; NIXL's plugin needs both */
int cuPointerGetAttributes(unsigned count, void *names, void **data, unsigned long address) { return 100; }

typedef struct { char internal[128]; } ncclUniqueId;
int ncclGetVersion(int *version) { *version = 22809; return 0; }
const char *ncclGetErrorString(int code) { return "unhandled system error"; }
int ncclGetUniqueId(ncclUniqueId *id) { memset(id->internal, 7, sizeof id->internal); return getenv("FAKE_NO_ID") ? 2 : 0; }
int ncclCommInitRank(void **communicator, int count, ncclUniqueId id, int number) {
  const char *network = getenv("FAKE_NETWORK"), *fails = getenv("FAKE_FAILS"), *killed = getenv("FAKE_KILLED");
  char text[512];
  ranks = count; rank = number;
  say("INFO NCCL version 2.28.9+cuda13.0");
  if (killed && atoi(killed) == number) raise(SIGKILL);
  if (id.internal[0] != 7 || id.internal[127] != 7) return 4;
  if (fails && atoi(fails) == number) { say("WARN socketProgressOpt: Call to recv from 10.0.0.9 failed : Connection refused"); return 2; }
  snprintf(text, sizeof text, "INFO comm 0x1 rank %d nRanks %d nNodes %s localRanks 1", number, count, network ? "2" : "1");
  say(text);
  if (network && !strcmp(network, "Libfabric")) say("INFO NET/OFI Selected provider is efa, fabric is efa (found 1 nics)");
  snprintf(text, sizeof text, "INFO Using network %s", network ? network : "IB");
  say(text);
  snprintf(text, sizeof text, "INFO Channel 00/0 : %d[0] -> %d[0] [send] via %s%s%s", number, (number + 1) % count,
           network ? "NET/" : "P2P/CUMEM", network ? network : "", network ? "/0" : "");
  say(text);
  *communicator = &ranks;
  return 0;
}
int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, void *communicator, void *stream) {
  for (size_t n = 0; n < count; n++) ((float *)to)[n] = ranks;
  const char *waits = getenv("FAKE_WAITS");
  usleep(waits ? atoi(waits) * 1000000 : 1000);
  return 0;
}
