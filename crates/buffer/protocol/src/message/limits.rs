//! Limits and versions.

/// Version of the messages; both sides must have the same one.
pub const PROTOCOL_VERSION: u16 = 11;
/// Most handles closed by one request.
pub const MAX_CLOSED_HANDLES: usize = 1024;
/// Longest name of a directory entry, in bytes.
pub const MAX_NAME: usize = 255;
/// Longest name of a client's host, in bytes.
pub const MAX_HOST_NAME: usize = 255;
/// Most hosts whose mounts of one instance a storage node refuses.
pub const MAX_FENCED_HOSTS: usize = 65_536;
/// Longest target of a symbolic link, in bytes.
pub const MAX_SYMLINK_TARGET: usize = 4095;
/// Longest value of an extended attribute, in bytes.
pub const MAX_XATTR: usize = 64 * 1024;
/// Longest access control list, in bytes: the kernel's FUSE passes on no longer ones.
pub const MAX_ACL_BYTES: usize = 4096;
/// Most data in one read or write over a socket, in bytes.
pub const MAX_DATA: usize = 4 << 20;
/// Longest file that is written or read by one request, in bytes.
pub const MAX_INLINE_FILE_BYTES: usize = 64 << 10;
/// Most inodes in one request for attributes, and most entries with attributes in one reply of a
/// directory listing.
pub const MAX_REQUEST_INODES: usize = 1024;
/// Most sessions in one listing, and in one request that evicts sessions.
pub const MAX_LISTED_SESSIONS: usize = 512;
/// Validity of a cacheable reply after its request was sent, in nanoseconds.
pub const CACHE_LIFETIME_NS: u64 = 1_000_000_000;
/// Validity of a read lease after the request for it was sent, in nanoseconds.
pub const READ_LEASE_NS: u64 = 1_000_000_000;
/// Time from the recall of a write lease, or its extension, until other clients do not wait for it any
/// more, in nanoseconds.
pub const WRITE_LEASE_RECALL_NS: u64 = 1_100_000_000;
/// Most handles in one request for read leases.
pub const MAX_LEASED_HANDLES: usize = 1024;
/// Lifetime of a session without a connection, in nanoseconds.
pub const SESSION_LEASE_NS: u64 = 60_000_000_000;
/// Most slots of a session.
pub const MAX_SLOTS: u32 = 64;
/// The slot on which storage nodes note the number of a session's [delegation](super::Delegated). No
/// connection has it.
pub const DELEGATION_SLOT: u32 = MAX_SLOTS;
/// The first of the slots on which storage nodes note the write leases of a session, one for each. No
/// connection has them.
pub const FIRST_WRITE_LEASE_SLOT: u32 = 1 << 16;
/// Most write leases of a session on a storage node.
pub const MAX_WRITE_LEASES: u32 = 1024;
/// Most data connections of a session.
pub const MAX_DATA_CONNECTIONS: u32 = 4096;
/// The slot on which a session reopens its handles after a restart of the daemon, before it uses any
/// other slot. When all sessions have done so, the daemon removes files that no handle keeps.
pub const RECOVERY_SLOT: u32 = MAX_SLOTS - 1;
/// The slot on which a session waits for events: granted file locks and recalled read leases.
pub const EVENT_SLOT: u32 = MAX_SLOTS - 2;
/// The slot on which a session asks whether the daemon replies at all, while another call takes long.
pub const PROBE_SLOT: u32 = MAX_SLOTS - 3;
