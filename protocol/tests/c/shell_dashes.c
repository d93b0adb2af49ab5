/* For each glibc named: whether its system and popen put "--" before the line. */
#include "process.h"

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        printf("%s %d\n", argv[i], foretell_shell_gets_dashes(argv[i]));
    return 0;
}
