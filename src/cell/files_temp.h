/*
 * A file that is written beside its place and appears there whole, or never. Where the file system can, it has no name
 * until then, so that not even a kill leaves something behind.
 */
#ifndef HC_CELL_FILES_TEMP_H
#define HC_CELL_FILES_TEMP_H

struct files_temp {
    int dir; /* the caller's */
    int fd;
    char name[32]; /* "" while it has none */
};

/* In the folder `dir`. 0 or -errno. */
int files_temp_open(struct files_temp *temp, int dir);
/* Gives it its place, over a file or symlink that is there. 0 or -errno; -EISDIR when a folder is there. */
int files_temp_commit(struct files_temp *temp, const char *name);
/* Closes it, and takes it away unless it was committed. */
void files_temp_close(struct files_temp *temp);
/* A name that nothing in the folder is likely to have. */
void files_temp_name(char name[32]);

#endif
