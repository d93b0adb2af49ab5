/* Reads a byte of itself, which introduces it, and stays so long that its arguments are looked at. It reads none of them. */
#include <fcntl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char byte;
    int self = argc > 0 ? open(argv[0], O_RDONLY) : -1;
    if (self < 0 || read(self, &byte, 1) != 1)
        return 1;
    usleep(500000);
    return 0;
}
