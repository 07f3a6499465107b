/* Send buffers of unix sockets: a server's are as small as its system's default, which is 208 KB on Linux. A reply of a
 * megabyte then waits four times for its reader, and each time one of the two processes stands still. */

#ifndef KETCH_SOCKETS_H
#define KETCH_SOCKETS_H

#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api.h"

enum { SEND_BUFFER = 4 << 20 }; /* bytes; the system gives less where it allows less (Linux: net.core.wmem_max) */
enum { LOOKED_AT = 64 };        /* descriptors */

static bool is_unix_connection(int fd) {
    union {
        struct sockaddr any;
        struct sockaddr_storage room;
    } peer;
    socklen_t size = sizeof peer;
    return getpeername(fd, &peer.any, &size) == 0 && peer.any.sa_family == AF_UNIX;
}

/* A client has connected. The API does not give its descriptor. accept(2) took the lowest that was free, so it is below
 * the one that is the lowest now, and first to come below that are those that were accepted last. */
static void client_changed(Context *context, Event event, uint64_t what, void *data) {
    const ClientInfo *client = data;
    (void)context, (void)event;
    if (what != CLIENT_CONNECTED || (client->flags & CLIENT_UNIX_SOCKET) == 0) return;
    int next = dup(STDERR_FILENO);
    if (next < 0) return;
    close(next);
    for (int fd = next - 1; fd > STDERR_FILENO && fd >= next - LOOKED_AT; fd--) {
        int size, wanted = SEND_BUFFER;
        socklen_t length = sizeof size;
        if (!is_unix_connection(fd) || getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &length) != 0) continue;
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &wanted, sizeof wanted);
        int before = size;
        if (getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &length) == 0 && size != before) return;
    }
}

static int widen_send_buffers(Context *context) {
    return SubscribeToServerEvent(context, (Event){CLIENT_CHANGE, 1}, client_changed);
}

#endif
