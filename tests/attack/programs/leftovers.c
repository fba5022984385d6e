/*
 * `leave TOKEN`: put the token everywhere where a later run could find it: files, shared memory, a queue, an abstract
 * socket, a process. `find`: look for them. `pair TOKEN`: leave, then find, in one process, to show that both work.
 */
#include "probe.h"
#include <mqueue.h>
#include <stddef.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/un.h>

static const char *const folders[] = {".",     "/tmp",       "/dev/shm", "/var/tmp",  "/run",
                                      "/home", "/workspace", "/sandbox", "/run/lock", "/root"};
enum { KEY = 0x7a11 };

static socklen_t abstract(struct sockaddr_un *name)
{
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    strcpy(name->sun_path + 1, "hotcell-attack-leftover");
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name->sun_path + 1));
}

static void leave(const char *token)
{
    char path[PATH_MAX];
    int files = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s/.attack-leftover", folders[i]);
        put(path, token);
        files += access(path, F_OK) == 0;
    }
    fact("left_files", "%d", files);
    int id = shmget(KEY, 4096, IPC_CREAT | 0666);
    char *memory = id < 0 ? (char *)-1 : shmat(id, NULL, 0);
    if (memory != (char *)-1)
        strncpy(memory, token, 4095);
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 256};
    mqd_t queue = mq_open("/attack-leftover", O_CREAT | O_RDWR | O_NONBLOCK, 0666, &attributes);
    if (queue >= 0 && mq_send(queue, token, strlen(token), 0) < 0)
        fact("mq_send", "%s", errno_word(errno));
    if (fork() == 0) {
        struct sockaddr_un name;
        socklen_t length = abstract(&name);
        int server = socket(AF_UNIX, SOCK_STREAM, 0);
        if (bind(server, (struct sockaddr *)&name, length) == 0)
            listen(server, 4);
        setsid();
        prctl(PR_SET_NAME, "attack-left");
        close(0);
        close(1);
        close(2);
        nap(20000);
        _exit(0);
    }
    nap(50);
}

static bool process_left(void)
{
    DIR *proc = opendir("/proc");
    bool found = false;
    for (struct dirent *entry; proc && (entry = readdir(proc));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/%s/comm", entry->d_name);
        int fd = entry->d_name[0] >= '0' && entry->d_name[0] <= '9' ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        if (fd >= 0 && read(fd, name, sizeof name - 1) > 0 && strncmp(name, "attack-left", 11) == 0)
            found = true;
        if (fd >= 0)
            close(fd);
    }
    if (proc)
        closedir(proc);
    return found;
}

static void find(void)
{
    char path[PATH_MAX];
    int files = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s/.attack-leftover", folders[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        files++;
        dump(fd);
        close(fd);
    }
    fact("files", "%d", files);
    int id = shmget(KEY, 4096, 0);
    probe("shm", id);
    char *memory = id < 0 ? (char *)-1 : shmat(id, NULL, SHM_RDONLY);
    if (memory != (char *)-1)
        fact("shm_has", "%.100s", memory);
    probe("mqueue", mq_open("/attack-leftover", O_RDONLY));
    struct sockaddr_un name;
    socklen_t length = abstract(&name);
    probe("abstract", connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&name, length));
    fact("process", "%s", process_left() ? "yes" : "no");
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    if (argc > 2)
        leave(argv[2]);
    if (strcmp(argv[1], "leave") != 0)
        find();
    return 0;
}
