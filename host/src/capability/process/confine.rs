//! What a contained command may not ask the kernel for, whoever it runs as.
//!
//! Everything but its stage is read-only where it runs, and thrown away. What is left are the ways around files: sockets,
//! which reach whoever listens at a path however empty the network is; keys, which the kernel keeps for a user and not for a
//! process; and the capabilities that could undo the mounts.

use std::io;
use std::sync::OnceLock;

use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
#[cfg(target_arch = "x86_64")]
use seccompiler::sock_filter;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// The kinds of pairs of connected sockets (`socketpair`) that may be used to reach somebody else: what is sent through one
/// of these may be given another address. The others stay connected to each other.
const LOOSE_PAIRS: [libc::c_int; 2] = [libc::SOCK_DGRAM, libc::SOCK_RAW];

/// The bits of a socket's kind that are no flags (`SOCK_TYPE_MASK` of the kernel).
const KIND_MASK: u64 = 0xf;

/// The bit by which a process of 64 bits asks for a call of the kernel's x32 interface, under numbers of its own.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// System calls that programs do without when a kernel has none. A ring makes sockets of its own; keys outlive the call.
const MISSING: [libc::c_long; 6] = [
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
];

/// What root keeps: to own, read and give away files, and to become somebody else. Others have nothing anyway.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID);

/// The filters of system calls, made before the fork: they allocate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Confinement(&'static [BpfProgram]);

impl Confinement {
    /// Of every contained command. The error says why this machine has none.
    pub(super) fn new() -> Result<Self, &'static str> {
        static FILTERS: OnceLock<Result<Vec<BpfProgram>, String>> = OnceLock::new();
        let made = FILTERS.get_or_init(|| filters().map_err(|error| error.to_string()));
        made.as_ref().map(|filters| Self(filters)).map_err(String::as_str)
    }

    /// Bind this process, and whatever it starts, for good. For a single-threaded child right before exec: plain system calls,
    /// no allocation.
    pub(super) fn bind(&self) -> io::Result<()> {
        // One by one; those that the kernel does not know are not there to be dropped.
        for capability in CapabilitySet::all().difference(KEPT).iter() {
            let _ = remove_capability_from_bounding_set(capability);
        }
        for filter in self.0 {
            // It also sets that nothing executed gains privileges.
            seccompiler::apply_filter(filter).map_err(|error| match error {
                seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
                _ => io::Error::from_raw_os_error(libc::EINVAL),
            })?;
        }
        Ok(())
    }
}

/// Each has one answer to what its rules name, and lets everything else pass.
fn filters() -> Result<Vec<BpfProgram>, BackendError> {
    let refuse = |rules: Vec<(libc::c_long, Vec<SeccompRule>)>, errno: i32| {
        let answer = SeccompAction::Errno(errno.unsigned_abs());
        let arch = TargetArch::try_from(std::env::consts::ARCH)?;
        SeccompFilter::new(rules.into_iter().collect(), SeccompAction::Allow, answer, arch)?.try_into()
    };
    let pairs = LOOSE_PAIRS.map(|kind| {
        let kind = u64::from(kind.unsigned_abs());
        let masked = SeccompCmpOp::MaskedEq(KIND_MASK);
        SeccompRule::new(vec![SeccompCondition::new(1, SeccompCmpArgLen::Dword, masked, kind)?])
    });
    let pairs = pairs.into_iter().collect::<Result<Vec<_>, _>>()?;
    let missing = MISSING.map(|call| (call, Vec::new())).to_vec();
    let mut filters = vec![
        refuse(vec![(libc::SYS_socket, Vec::new()), (libc::SYS_socketpair, pairs)], libc::EACCES)?,
        refuse(missing, libc::ENOSYS)?,
    ];
    #[cfg(target_arch = "x86_64")]
    filters.push(without_x32());
    Ok(filters)
}

/// The interface has its own numbers for the same calls, and hardly any kernel offers it.
#[cfg(target_arch = "x86_64")]
fn without_x32() -> BpfProgram {
    let rule =
        |code: u32, jt, jf, k| sock_filter { code: u16::try_from(code).unwrap_or_default(), jt, jf, k };
    vec![
        // The number of the call is what `seccomp_data` begins with.
        rule(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        rule(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0, 1, X32),
        rule(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()),
        rule(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}
