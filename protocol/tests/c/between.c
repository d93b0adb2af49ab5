/* A library of a user's own that lies between foretell's and the C library. */
#include <stddef.h>
#include <sys/types.h>
#include <unistd.h>

ssize_t read(int fd, void *to, size_t bytes)
{
    return pread(fd, to, bytes, 0);
}

int aio_return(void *control)
{
    (void)control;
    return -1;
}
