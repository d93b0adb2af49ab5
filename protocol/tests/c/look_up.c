/* Says of each name whether dlsym finds it, in the whole program and behind it. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        printf("%s %d %d\n", argv[i], dlsym(RTLD_DEFAULT, argv[i]) != NULL,
               dlvsym(RTLD_DEFAULT, argv[i], "GLIBC_0.0") != NULL);
    return 0;
}
