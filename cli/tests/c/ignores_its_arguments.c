/* Stays for half a second, so that its arguments are looked at, and reads none of them. */
#include <unistd.h>

int main(void)
{
    usleep(500000);
    return 0;
}
