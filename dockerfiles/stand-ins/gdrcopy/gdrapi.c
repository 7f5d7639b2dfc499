/* A stand-in for GDRCopy's library, see Dockerfile: there is never a device to open. */
#include <errno.h>
#include "gdrapi.h"

gdr_t gdr_open(void) { return NULL; }
int gdr_close(gdr_t gdr) { return EINVAL; }
int gdr_pin_buffer(gdr_t gdr, unsigned long address, size_t size, uint64_t token, uint32_t space, gdr_mh_t *handle) { return EINVAL; }
int gdr_pin_buffer_v2(gdr_t gdr, unsigned long address, size_t size, uint32_t flags, gdr_mh_t *handle) { return EINVAL; }
int gdr_unpin_buffer(gdr_t gdr, gdr_mh_t handle) { return EINVAL; }
int gdr_map(gdr_t gdr, gdr_mh_t handle, void **address, size_t size) { return EINVAL; }
int gdr_unmap(gdr_t gdr, gdr_mh_t handle, void *address, size_t size) { return EINVAL; }
int gdr_copy_to_mapping(gdr_mh_t handle, void *target, const void *source, size_t size) { return EINVAL; }
int gdr_copy_from_mapping(gdr_mh_t handle, void *target, const void *source, size_t size) { return EINVAL; }
int gdr_driver_get_version(gdr_t gdr, int *major, int *minor) { return EINVAL; }
void gdr_runtime_get_version(int *major, int *minor)
{
    *major = GDR_API_MAJOR_VERSION;
    *minor = GDR_API_MINOR_VERSION;
}
