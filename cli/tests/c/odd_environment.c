/* Executes its arguments with an environment that no shell makes. */
#include <unistd.h>

int main(int argc, char **argv)
{
    static char path[] = "PATH=/usr/local/bin:/usr/bin:/bin";
    char *environment[] = {"Z=1", "A=2",    "no value",          "A=3", "Z=1", "",
                           "=x",  "B=\xff", "LD_PRELOAD_SUFFIX", path,  "C=",  NULL};
    if (argc < 2)
        return 2;
    execve(argv[1], argv + 1, environment);
    return 3;
}
