/* Runs a program and lets one system call fail that it makes on files below a folder:
 *     inject FOLDER NTH ERROR REPORT PROGRAM ARGUMENT...
 * NTH counts those calls from 1; 0 lets all through. ERROR is a number of errno.h, or 0: a write gets half of its bytes
 * in. The file REPORT gets a line for each call: its name, the file, and " failed" where it did. Linux on x86-64 or
 * arm64. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* Where a call names a file: arguments that are a path (1, 2, 4 … as bits), and one that is a descriptor or -1. */
struct call { long number; const char *name; int paths; int descriptor; };
static const struct call CALLS[] = {
    {SYS_openat, "openat", 2, -1}, {SYS_write, "write", 0, 0}, {SYS_pwrite64, "write", 0, 0},
    {SYS_writev, "write", 0, 0}, {SYS_read, "read", 0, 0}, {SYS_pread64, "read", 0, 0},
    {SYS_lseek, "lseek", 0, 0}, {SYS_fsync, "fsync", 0, 0}, {SYS_fdatasync, "fdatasync", 0, 0},
    {SYS_ftruncate, "ftruncate", 0, 0}, {SYS_flock, "flock", 0, 0}, {SYS_fchmod, "fchmod", 0, 0},
    {SYS_statx, "stat", 2, 0}, {SYS_newfstatat, "stat", 2, 0}, {SYS_fstat, "stat", 0, 0},
    {SYS_renameat, "rename", 2 | 8, -1}, {SYS_renameat2, "rename", 2 | 8, -1}, {SYS_linkat, "link", 2 | 8, -1},
    {SYS_unlinkat, "unlink", 2, -1}, {SYS_mkdirat, "mkdir", 2, -1}, {SYS_getdents64, "getdents", 0, 0},
    {SYS_copy_file_range, "copy_file_range", 0, 2}, {SYS_sendfile, "sendfile", 0, 0}, {SYS_utimensat, "utimes", 2, 0},
#ifdef SYS_open
    {SYS_open, "openat", 1, -1}, {SYS_rename, "rename", 1 | 2, -1}, {SYS_link, "link", 1 | 2, -1},
    {SYS_unlink, "unlink", 1, -1}, {SYS_mkdir, "mkdir", 1, -1}, {SYS_stat, "stat", 1, -1}, {SYS_lstat, "stat", 1, -1},
#endif
};

static const char *folder;
static char found[4096];

static int is_below(const char *path) {
    if (strncmp(path, folder, strlen(folder))) return 0;
    snprintf(found, sizeof found, "%s", path);
    return 1;
}

static int names_ours(pid_t pid, const struct call *call, const uint64_t *arguments) {
    char path[4096], link[64];
    int memory = -1;
    for (int i = 0; i < 4; i++) {
        if (!(call->paths & 1 << i) || !arguments[i]) continue;
        snprintf(link, sizeof link, "/proc/%d/mem", pid);
        if (memory < 0 && (memory = open(link, O_RDONLY)) < 0) return 0;
        /* A path near the end of a page: as much of it as can be read. */
        ssize_t n = pread(memory, path, sizeof path - 1, (off_t)arguments[i]);
        if (n < 0) n = pread(memory, path, 4096 - arguments[i] % 4096, (off_t)arguments[i]);
        if (n <= 0) continue;
        path[n < (ssize_t)sizeof path ? n : (ssize_t)sizeof path - 1] = 0;
        if (is_below(path)) { close(memory); return 1; }
    }
    if (memory >= 0) close(memory);
    if (call->descriptor < 0) return 0;
    snprintf(link, sizeof link, "/proc/%d/fd/%d", pid, (int)arguments[call->descriptor]);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return 0;
    path[n] = 0;
    return is_below(path);
}

/* On entry: another call, none (-1), or as many bytes; on exit: what the call returns. */
static void change(pid_t pid, const long *number, const uint64_t *bytes, const long *result) {
    struct user_regs_struct registers;
    struct iovec all = {&registers, sizeof registers};
    ptrace(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &all);
#if defined __x86_64__
    if (number) registers.orig_rax = *number;
    if (bytes) registers.rdx = *bytes;
    if (result) registers.rax = *result;
#elif defined __aarch64__
    if (number) {
        int none = (int)*number;
        struct iovec one = {&none, sizeof none};
        ptrace(PTRACE_SETREGSET, pid, (void *)NT_ARM_SYSTEM_CALL, &one);
    }
    if (bytes) registers.regs[2] = *bytes;
    if (result) registers.regs[0] = *result;
#else
#error "no such machine"
#endif
    ptrace(PTRACE_SETREGSET, pid, (void *)NT_PRSTATUS, &all);
}

int main(int n, char **arguments) {
    if (n < 6) return 99;
    folder = arguments[1];
    long nth = atol(arguments[2]), error = atol(arguments[3]), count = 0;
    FILE *report = fopen(arguments[4], "w");
    if (!report) return 99;
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        execvp(arguments[5], arguments + 5);
        _exit(98);
    }
    int status;
    if (waitpid(child, &status, 0) < 0 || !WIFSTOPPED(status)) return 99;
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK
        | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, child, 0, options)) return 97;
    ptrace(PTRACE_SYSCALL, child, 0, 0);
    pid_t pid, failing = 0;
    while ((pid = waitpid(-1, &status, __WALL)) > 0) {
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (pid == child) {
                fclose(report);
                return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            }
            continue;
        }
        int signal = WSTOPSIG(status);
        if (signal == (SIGTRAP | 0x80)) {
            signal = 0;
            struct __ptrace_syscall_info info;
            memset(&info, 0, sizeof info);
            if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof info, &info) <= 0) return 97;
            if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
                for (size_t i = 0; i < sizeof CALLS / sizeof *CALLS; i++) {
                    const struct call *call = &CALLS[i];
                    if (call->number != (long)info.entry.nr || !names_ours(pid, call, info.entry.args)) continue;
                    int is_write = call->number == SYS_write;
                    if (error == 0 && (!is_write || info.entry.args[2] < 2)) break;
                    int fails = ++count == nth;
                    fprintf(report, "%s %s%s\n", call->name, found, fails ? " failed" : "");
                    fflush(report);
                    if (fails && error == 0) {
                        uint64_t half = info.entry.args[2] / 2;
                        change(pid, NULL, &half, NULL);
                    } else if (fails) {
                        long none = -1;
                        failing = pid;
                        change(pid, &none, NULL, NULL);
                    }
                    break;
                }
            } else if (info.op == PTRACE_SYSCALL_INFO_EXIT && failing == pid) {
                long result = -error;
                failing = 0;
                change(pid, NULL, NULL, &result);
            }
        } else if (signal == SIGTRAP || signal == SIGSTOP) {
            signal = 0; /* a new thread, or the start of a program */
        }
        ptrace(PTRACE_SYSCALL, pid, 0, (void *)(long)signal);
    }
    return 96;
}
