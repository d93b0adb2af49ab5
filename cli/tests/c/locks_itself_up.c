/* Enters seccomp's strict mode, which leaves read, write and exit, and reads on. */
#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char bytes[100];
    int fd = open(argv[argc - 1], O_RDONLY);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    ssize_t got = read(fd, bytes, sizeof bytes);
    if (got > 0)
        got = write(1, bytes, (size_t)got);
    syscall(SYS_exit, got > 0 ? 6 : 1);
    return 0;
}
