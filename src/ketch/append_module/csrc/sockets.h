/* Makes the send buffers larger of the unix sockets that the server accepts; nothing else of a connection is touched.
 * Without this they have the system's default size, on Linux 208 KB, whatever the load. A reply of a megabyte then waits
 * several times for its reader, and each time one of the two processes stands still. */

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

/* A client has connected. The API does not tell the descriptor of its socket, so it is looked for. accept(2) takes the
 * lowest free descriptor, so all between the new one and the one that is the lowest free now are in use and older. Of
 * these the buffers are as large as they can be already: the first one downwards whose buffer grows is the new one. */
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
