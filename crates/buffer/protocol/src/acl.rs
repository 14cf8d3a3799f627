//! POSIX access control lists, as in `acl(5)`, in the format of Linux's extended attributes: a version of
//! 4 bytes, and entries of 8 bytes with tag, permissions and user or group.
//!
//! An inode with an access list has the permissions of its owner, its mask and all others in its mode,
//! too, as on local file systems. A list that says no more than a mode is not stored.

use crate::message::{ACCESS_ACL, DEFAULT_ACL, MAX_ACL_BYTES};
use crate::{Credentials, Errno};

const VERSION: u32 = 2;
/// The value of a list without entries.
pub const NO_ENTRIES: &[u8] = &VERSION.to_le_bytes();
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// The user or group of an entry that has none.
const NO_ID: u32 = u32::MAX;
/// The permission bits of a mode.
const PERMISSIONS: u16 = 0o777;

/// The subject of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    /// The owner.
    Owner = 0x01,
    /// A user.
    User = 0x02,
    /// Members of the inode's group.
    OwningGroup = 0x04,
    /// Members of a group.
    Group = 0x08,
    /// The most that users and groups get.
    Mask = 0x10,
    /// All others.
    Others = 0x20,
}

impl Tag {
    fn from_number(number: u16) -> Result<Tag, Errno> {
        let all = [Tag::Owner, Tag::User, Tag::OwningGroup, Tag::Group, Tag::Mask, Tag::Others];
        all.into_iter().find(|tag| *tag as u16 == number).ok_or(Errno::EINVAL)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: Tag,
    permissions: u16,
    id: u32,
}

/// An access control list: at least the entries of the owner, the group and all others; with a mask if
/// it names users or groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

/// The lists of a new inode, by the names of the extended attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InheritedAcls(pub Vec<(Vec<u8>, Vec<u8>)>);

impl Acl {
    /// A list from the value of an extended attribute; `None` if it has no entries.
    ///
    /// # Errors
    /// `E2BIG`: it is too long; `EOPNOTSUPP`: it has another version; `EINVAL`: it is not a list.
    pub fn parse(value: &[u8]) -> Result<Option<Acl>, Errno> {
        if value.len() > MAX_ACL_BYTES {
            return Err(Errno::E2BIG);
        }
        let (version, entries) = value.split_first_chunk().ok_or(Errno::EINVAL)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Errno::EOPNOTSUPP);
        }
        let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
        if !rest.is_empty() {
            return Err(Errno::EINVAL);
        }
        let entries = entries.iter().map(parse_entry).collect::<Result<Vec<_>, _>>()?;
        if entries.is_empty() {
            return Ok(None);
        }
        if is_ordered(&entries) { Ok(Some(Acl(entries))) } else { Err(Errno::EINVAL) }
    }

    /// The value of the extended attribute.
    pub fn value(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(HEADER_BYTES + self.0.len() * ENTRY_BYTES);
        value.extend(VERSION.to_le_bytes());
        for entry in &self.0 {
            value.extend((entry.tag as u16).to_le_bytes());
            value.extend(entry.permissions.to_le_bytes());
            value.extend(entry.id.to_le_bytes());
        }
        value
    }

    /// The permission bits of the mode that it implies.
    pub fn permissions(&self) -> u16 {
        self.0.iter().fold(0, |mode, entry| match entry.tag {
            Tag::Owner => mode | entry.permissions << 6,
            Tag::Mask => mode & !0o070 | entry.permissions << 3,
            // It is before the mask.
            Tag::OwningGroup => mode | entry.permissions << 3,
            Tag::Others => mode | entry.permissions,
            Tag::User | Tag::Group => mode,
        })
    }

    /// Whether it says no more than a mode.
    pub fn is_mode(&self) -> bool {
        self.0.len() == 3
    }

    /// Set the entries that the permission bits of a mode stand for.
    fn set_permissions(&mut self, mode: u16) {
        self.change_permissions(mode, |_, of_mode| of_mode);
    }

    /// The list and the mode of a new inode, for a directory with this default list. `mode`: the one
    /// that its creator wants, of which the list only removes permissions.
    fn restricted(mut self, mode: u16) -> (Acl, u16) {
        self.change_permissions(mode, |permissions, of_mode| permissions & of_mode);
        let mode = mode & !PERMISSIONS | self.permissions();
        (self, mode)
    }

    /// Set the entries that the permission bits of a mode stand for to `new` of the present permissions
    /// and those of the mode.
    fn change_permissions(&mut self, mode: u16, new: impl Fn(u16, u16) -> u16) {
        let has_mask = self.0.iter().any(|entry| entry.tag == Tag::Mask);
        for entry in &mut self.0 {
            let shift = match entry.tag {
                Tag::Owner => 6,
                Tag::Mask => 3,
                Tag::OwningGroup if !has_mask => 3,
                Tag::Others => 0,
                Tag::User | Tag::OwningGroup | Tag::Group => continue,
            };
            entry.permissions = new(entry.permissions, mode >> shift & 7);
        }
    }

    /// Whether it permits a user who is not the owner all of `want`. `gid`: the inode's group.
    pub fn permits(&self, user: &Credentials, gid: u32, want: u16) -> Result<bool, Errno> {
        let suffices = |permissions: u16| permissions & want == want;
        let mask = self.0.iter().find(|entry| entry.tag == Tag::Mask);
        let is_unmasked = mask.is_none_or(|mask| suffices(mask.permissions));
        let mut is_member = false;
        for entry in &self.0 {
            match entry.tag {
                Tag::User if entry.id == user.uid => {
                    return Ok(is_unmasked && suffices(entry.permissions));
                }
                Tag::OwningGroup | Tag::Group => {
                    let group = if entry.tag == Tag::Group { entry.id } else { gid };
                    if user.in_group(group)? {
                        is_member = true;
                        if suffices(entry.permissions) {
                            return Ok(is_unmasked);
                        }
                    }
                }
                Tag::Others => return Ok(!is_member && suffices(entry.permissions)),
                Tag::Owner | Tag::User | Tag::Mask => {}
            }
        }
        unreachable!("a list has an entry for all others")
    }
}

impl InheritedAcls {
    /// The lists and the mode of a new inode in a directory with this default list. `mode`: the one
    /// that its creator wants.
    pub fn of_default(default: &[u8], mode: u16, is_dir: bool) -> Result<(Self, u16), Errno> {
        let list = Acl::parse(default)?.ok_or(Errno::EINVAL)?;
        let (access, mode) = list.restricted(mode);
        let mut acls = Vec::new();
        if !access.is_mode() {
            acls.push((ACCESS_ACL.to_vec(), access.value()));
        }
        if is_dir {
            acls.push((DEFAULT_ACL.to_vec(), default.to_vec()));
        }
        Ok((InheritedAcls(acls), mode))
    }

    /// The mode of the new inode was set to another one.
    pub fn set_mode(&mut self, mode: u16) {
        for (name, value) in &mut self.0 {
            if name == ACCESS_ACL {
                set_mode(value, mode);
            }
        }
    }
}

/// Adapt a stored access list to a new mode. Its length does not change.
pub fn set_mode(value: &mut Vec<u8>, mode: u16) {
    if let Ok(Some(mut acl)) = Acl::parse(value) {
        acl.set_permissions(mode);
        let length = value.len();
        *value = acl.value();
        assert_eq!(value.len(), length, "the entries stay");
    }
}

/// The permission bits of a copy without the list of its source, which has `mode`: with the list, the bits of
/// the group are the most that any user or group of the list may do. Without it, a user of the list may do
/// what his group, or all others, may do. So these get no more than any of those had.
pub fn mode_without_list(list: &[u8], mode: u32) -> u32 {
    let class = |shift: u32| mode >> shift & 0o7;
    let mask = class(3);
    let (mut group, mut others) = (mask, class(0));
    let Ok(Some(list)) = Acl::parse(list) else {
        return mode & !0o077;
    };
    for entry in list.0 {
        let permissions = u32::from(entry.permissions);
        match entry.tag {
            Tag::OwningGroup => group &= permissions,
            Tag::User => {
                group &= permissions;
                others &= permissions & mask;
            }
            // A member who is in the owning group, too, had the permissions of both.
            Tag::Group => others &= permissions & mask,
            Tag::Owner | Tag::Mask | Tag::Others => {}
        }
    }
    mode & !0o077 | group << 3 | others
}

fn parse_entry(bytes: &[u8; ENTRY_BYTES]) -> Result<Entry, Errno> {
    let [tag_low, tag_high, low, high, id @ ..] = *bytes;
    let tag = Tag::from_number(u16::from_le_bytes([tag_low, tag_high]))?;
    let permissions = u16::from_le_bytes([low, high]);
    let is_named = matches!(tag, Tag::User | Tag::Group);
    let id = if is_named { u32::from_le_bytes(id) } else { NO_ID };
    if permissions > 7 || (is_named && id == NO_ID) {
        return Err(Errno::EINVAL);
    }
    Ok(Entry { tag, permissions, id })
}

/// Whether a list has the entries that it needs, in the order of their tags.
fn is_ordered(entries: &[Entry]) -> bool {
    let count = |tag| entries.iter().filter(|entry| entry.tag == tag).count();
    let names_any = count(Tag::User) + count(Tag::Group) > 0;
    entries.is_sorted_by_key(|entry| entry.tag as u16)
        && [Tag::Owner, Tag::OwningGroup, Tag::Others].into_iter().all(|tag| count(tag) == 1)
        && (usize::from(names_any)..=1).contains(&count(Tag::Mask))
}

#[cfg(test)]
mod tests;
