//! What a shard's thread asks of the kernel after its start.

use super::program::Rule;

/// The calls of a shard's thread. It opens nothing, makes no connection, starts nothing and maps
/// nothing that can be executed. `udp`: its port is a UDP socket.
pub(super) fn rules(udp: bool) -> Vec<Rule> {
    let own_process = std::process::id();
    let executable = libc::PROT_EXEC as u32;
    let without = |call, argument| Rule::Without {
        call,
        argument,
        bits: executable,
    };
    let mut rules: Vec<Rule> = WORK
        .iter()
        .chain(MEMORY)
        .chain(END)
        .copied()
        .map(Rule::Allow)
        .collect();
    if udp {
        rules.extend(UDP.iter().copied().map(Rule::Allow));
    }
    rules.extend([
        without(libc::SYS_mmap, 2),
        without(libc::SYS_mprotect, 2),
        // What std asks of a descriptor before it closes it, where debug assertions are on.
        Rule::With {
            call: libc::SYS_fcntl,
            argument: 1,
            value: libc::F_GETFD as u32,
        },
        // abort(3), and threads of no other process.
        Rule::With {
            call: libc::SYS_tgkill,
            argument: 0,
            value: own_process,
        },
    ]);
    rules.extend(REFUSED.iter().copied().map(Rule::Refuse));
    rules
}

/// The poll loop: AF_XDP's wake-ups and statistics, clients' wake-ups, kicks, commands, time.
const WORK: &[libc::c_long] = &[
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_ppoll,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_getsockopt,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    // After SIGSTOP and SIGCONT, or a debugger's visit.
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigreturn,
];

/// What a UDP socket takes beside.
const UDP: &[libc::c_long] = &[
    libc::SYS_sendmmsg,
    libc::SYS_recvmsg,
    // Whether what is sent may be fragmented.
    libc::SYS_setsockopt,
];

/// What commands bring and take: rings, regions, sockets; the allocator. HashMap's seeds. Clients'
/// memory that is not mapped; faults of what is take `mmap`, without PROT_EXEC
/// (`rnic_ipc::shm::contain_faults`).
const MEMORY: &[libc::c_long] = &[
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_close,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_getrandom,
    libc::SYS_sched_getaffinity,
];

/// The end of the thread, or, with a panic, of the process.
const END: &[libc::c_long] = &[
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_getpid,
    libc::SYS_gettid,
];

/// What libraries try on the way, and do without: the names in a panic's backtrace, and what the
/// allocator would like to know of the host before it gives memory back.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_openat,
    libc::SYS_readlinkat,
    libc::SYS_getcwd,
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_lseek,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
];
