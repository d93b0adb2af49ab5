/* Prints the pending dlerror at the start, and for each name whether dlsym finds it, and whether dlvsym finds
 * it under a version that does not exist. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int error = errno;
    const char *of_loader = dlerror();
    printf("%d %s\n", error, of_loader != NULL ? of_loader : "none");
    for (int i = 1; i < argc; i++)
        printf("%s %d %d\n", argv[i], dlsym(RTLD_DEFAULT, argv[i]) != NULL,
               dlvsym(RTLD_DEFAULT, argv[i], "GLIBC_0.0") != NULL);
    return 0;
}
