/* Raw TCP: a message of 64 bytes there and back over a connected socket, with nothing but send and recv around it.

   Both sides are loops of C from end to end; whoever calls them has only connected the socket. */

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#define SIZE 64

static int64_t now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

/* All of a message in, or out: 0 if the connection ended. */
static int take(int socket, char *data)
{
    size_t got = 0;
    while (got < SIZE) {
        ssize_t some = recv(socket, data + got, SIZE - got, 0);
        if (some > 0)
            got += (size_t)some;
        else if (some == 0 || errno != EINTR)
            return 0;
    }
    return 1;
}

static int give(int socket, const char *data)
{
    size_t gone = 0;
    while (gone < SIZE) {
        ssize_t some = send(socket, data + gone, SIZE - gone, MSG_NOSIGNAL);
        if (some >= 0)
            gone += (size_t)some;
        else if (errno != EINTR)
            return 0;
    }
    return 1;
}

/* Send n messages back; how many it was. */
int64_t echo(int socket, int64_t n)
{
    char data[SIZE];
    for (int64_t done = 0; done < n; done++)
        if (!take(socket, data) || !give(socket, data))
            return done;
    return n;
}

/* n round trips, each when the one before is over, and the nanoseconds of each; how many came back as they were sent. */
int64_t trips(int socket, int64_t n, const char *message, int64_t *nanoseconds)
{
    char data[SIZE];
    int64_t before = now();
    for (int64_t done = 0; done < n; done++) {
        if (!give(socket, message) || !take(socket, data))
            return done;
        int64_t after = now();
        nanoseconds[done] = after - before;
        before = after;
        if (memcmp(data, message, SIZE) != 0)
            return done;
    }
    return n;
}
