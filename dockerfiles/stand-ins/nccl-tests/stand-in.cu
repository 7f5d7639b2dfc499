/* A stand-in for a program of nccl-tests: starts MPI and asks NCCL for its version, as the real one does, then says what it
 * is and fails, so that nobody takes its output for a measurement. */
#include <cstdio>
#include <cuda_runtime.h>
#include <nccl.h>
#ifdef MPI_SUPPORT
#include <mpi.h>
#endif

__global__ void nothing() {}

int main(int argc, char *argv[])
{
    int rank = 0, ranks = 1, version = 0, devices = 0;
#ifdef MPI_SUPPORT
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#endif
    if (ncclGetVersion(&version) != ncclSuccess || version != NCCL_VERSION_CODE) {
        fprintf(stderr, "compiled for NCCL %d, found %d\n", NCCL_VERSION_CODE, version);
        return 2;
    }
    if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) {
        nothing<<<1, 1>>>();
        cudaDeviceSynchronize();
    }
    printf("%s: rank %d of %d, NCCL %d, %d GPUs: this image is a rehearsal, and its nccl-tests measure nothing; build it "
           "without --rehearse\n",
           argv[0], rank, ranks, version, devices);
#ifdef MPI_SUPPORT
    MPI_Finalize();
#endif
    return 1;
}
