/*
 * What the benchmark's clients know of HTTP: one request again and again on a connection that is kept. Answers must
 * have a Content-Length and fit into ANSWER_LIMIT; nothing here is a parser for the world's servers.
 */
#ifndef HC_BENCH_HTTP_H
#define HC_BENCH_HTTP_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ANSWER_LIMIT = 64 * 1024, REQUEST_LIMIT = 16 * 1024 };

static inline uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* The fd, or -1. */
static inline int http_connect(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        close(fd);
        return -1;
    }
    if (fd >= 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* The length of the request, or 0: it does not fit into REQUEST_LIMIT. */
static inline size_t http_write(char *request, int port, const char *method, const char *path, const char *body)
{
    int length = snprintf(request, REQUEST_LIMIT,
                          "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
                          "Content-Length: %zu\r\n\r\n%s",
                          method, path, port, strlen(body), body);
    return length > 0 && length < REQUEST_LIMIT ? (size_t)length : 0;
}

/* Looks at what has come of an answer. NULL: there is more to come, or *wrong says why it is none that counts: only an
 * answer with status 200 and, unless it is NULL, with `word` in its body does. Otherwise the body. */
static inline const char *http_body(const char *answer, size_t length, const char *word, const char **wrong)
{
    const char *end = strstr(answer, "\r\n\r\n");
    *wrong = NULL;
    if (end == NULL)
        return NULL;
    const char *header = strcasestr(answer, "\r\ncontent-length:");
    if (header == NULL || header > end) {
        *wrong = "an answer without Content-Length";
        return NULL;
    }
    const char *body = end + 4;
    if (length < (size_t)(body - answer) + strtoul(strchr(header, ':') + 1, NULL, 10))
        return NULL;
    if (strncmp(answer, "HTTP/1.1 200 ", 13) != 0 || (word != NULL && strstr(body, word) == NULL)) {
        *wrong = "the answer is";
        return NULL;
    }
    return body;
}

#endif
