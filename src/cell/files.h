/*
 * Files of a cell, worked on from inside: one operation for each process. The caller has made the process a guest
 * already (uid, no capabilities, Landlock, the system call filter, the working directory), so nothing here can reach
 * what the guest could not; what it owes is to never hang, crash, loop or fill memory, whatever the guest does with its
 * files meanwhile.
 *
 * words[0] is the operation, the others are `key=value`. A value may hold any byte but NUL; numbers are decimal, modes
 * octal, switches `true` or `false`. A path is absolute or below the working directory; an empty one is the working
 * directory.
 *
 *   operation  keys (with their defaults)                            facts in the head          body
 *   list       path limit=1000 depth=1 after                         -                          out: JSON
 *   stat       path follow=true                                      those of a file            -
 *   read       path offset length | suffix                           size offset length + file  out: bytes
 *   write      path mode append=false parents=true limit length      size created               in: bytes
 *   delete     path recursive=false                                  deleted                    -
 *   move       from to overwrite=false parents=true                  copied                     -
 *   mkdir      path parents=false mode                               created                    -
 *   disk       path                                                  used limit inodes          -
 *                                                                    inodes_limit
 *   search     path name content regex=false limit=100 max_size=64m  -                          out: JSON
 *              time=10000
 *   watch      path recursive=false watches=4096                     -                          out: JSON lines
 *   pack       path limit recover=false                              entries bytes skipped      out: tar
 *   unpack     path limit entries=1000000 recover=false              entries bytes (skipped)    in: tar
 *
 * Facts of a file: path, type, size, mode, modified_at, mtime (seconds), and target of a symlink.
 *   list: the entries are in bytewise order by name; with a depth of more than 1 a name is the path below the folder,
 *         and a folder comes right before what is in it. `after` is the last name that the caller has seen.
 *   read: regular files only. A range that the file does not have: errno ERANGE, with the file's size.
 *   write: `length` is what the body must come to, where it is known; a shorter body changes nothing. With `limit`, a
 *         longer one neither.
 *   search: `name` is a pattern as in glob.h, for the path below `path` if it has a slash, else for the last name.
 *         `time` is in milliseconds. Lines are searched in pieces of 64 KiB; line and column (in bytes) begin at 1.
 *   pack: the facts are what was counted before the first byte; `bytes` are those of the files, without headers.
 *         With `recover`, a file that does not fit into `limit` is left out and counted (skipped), not refused.
 *   unpack: with `recover`, what the disk has no room for is left out and counted, and long runs of zeros become holes.
 *
 * fd 0 is the body in and fd 1 the body out. fd 2 gets the head, exactly one line of JSON: {"ok":true, …facts} or
 * {"ok":false,"errno":2,"code":"not_found","message":"…"}, with "remedy" where there is one. Codes: not_found,
 * forbidden, conflict, too_large, no_space, invalid_request, internal. Where the body goes out the head comes first;
 * where it comes in the head comes last, and before all of the body was read if the operation fails.
 *
 * A name, path, target or text that is not UTF-8 is under its key with _base64 added.
 */
#ifndef HC_CELL_FILES_H
#define HC_CELL_FILES_H

#include <stdint.h>

/* Does it, and returns the exit status: 0 when the head tells all; 1 when a body out was cut short after the head. */
int files_run(char *const *words, uint32_t count);
_Noreturn void files_main(char *const *words, uint32_t count);

#endif
