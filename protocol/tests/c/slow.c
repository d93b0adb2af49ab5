/* A library whose reads take a millisecond more than the C library's, preloaded behind the interposing one. */
#include <dlfcn.h>
#include <stddef.h>
#include <sys/types.h>
#include <unistd.h>

static ssize_t (*real_read)(int, void *, size_t);

__attribute__((constructor)) static void begin(void)
{
    *(void **)&real_read = dlsym(RTLD_NEXT, "read");
}

ssize_t read(int fd, void *to, size_t bytes)
{
    usleep(1000);
    return real_read(fd, to, bytes);
}
