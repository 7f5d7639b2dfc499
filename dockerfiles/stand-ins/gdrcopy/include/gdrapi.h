/* A stand-in for GDRCopy's header, see Dockerfile: what aws-ofi-nccl uses of it. */
#ifndef __GDRAPI_H__
#define __GDRAPI_H__
#include <stddef.h>
#include <stdint.h>

#define GDR_API_MAJOR_VERSION @MAJOR@
#define GDR_API_MINOR_VERSION @MINOR@
#define GPU_PAGE_SIZE (1UL << 16)

typedef struct gdr *gdr_t;
typedef struct { unsigned long h; } gdr_mh_t;
enum { GDR_PIN_FLAG_DEFAULT = 0, GDR_PIN_FLAG_FORCE_PCIE = 1 };

gdr_t gdr_open(void);
int gdr_close(gdr_t);
int gdr_pin_buffer(gdr_t, unsigned long, size_t, uint64_t, uint32_t, gdr_mh_t *);
int gdr_pin_buffer_v2(gdr_t, unsigned long, size_t, uint32_t, gdr_mh_t *);
int gdr_unpin_buffer(gdr_t, gdr_mh_t);
int gdr_map(gdr_t, gdr_mh_t, void **, size_t);
int gdr_unmap(gdr_t, gdr_mh_t, void *, size_t);
int gdr_copy_to_mapping(gdr_mh_t, void *, const void *, size_t);
int gdr_copy_from_mapping(gdr_mh_t, void *, const void *, size_t);
void gdr_runtime_get_version(int *, int *);
int gdr_driver_get_version(gdr_t, int *, int *);
#endif
