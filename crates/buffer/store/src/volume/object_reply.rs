//! Replies about files whose data objects determine a part of the attributes.

use crate::objects::FetchedObject;
use forebay_protocol::placement::ObjectInfo;
use forebay_protocol::{Attr, Errno, Reply};

/// Add to an inode's attributes what its data object determines.
pub fn add_object_info(attr: &mut Attr, stat: &ObjectInfo) {
    attr.size = stat.size;
    attr.blocks = stat.space / 512;
    // A write changes ctime too, but setting mtime must not move ctime with it.
    if stat.mtime != attr.mtime {
        attr.ctime = attr.ctime.max(stat.mtime);
    }
    attr.mtime = stat.mtime;
    attr.atime = stat.atime;
}

/// The reply to a request for a whole file. `attr` and `length` are those of
/// [`Effect::FetchObject`](crate::driver::Effect::FetchObject). `object` is `None` if it is too long
/// or being written.
pub fn fetch_reply(
    mut attr: Attr,
    length: Option<u64>,
    object: Result<Option<FetchedObject>, Errno>,
) -> Reply {
    let FetchedObject { stat, mut data } = match object {
        Ok(Some(object)) => object,
        Ok(None) => return Reply::Failed(Errno::EOPNOTSUPP),
        // The file was removed meanwhile.
        Err(Errno::ENOENT) => return Reply::Failed(Errno::ESTALE),
        Err(errno) => return Reply::Failed(errno),
    };
    match (length, stat) {
        // A file may end in a hole, beyond the end of its object.
        (Some(length), _) => data.resize(length as usize, 0),
        (None, Some(stat)) => add_object_info(&mut attr, &stat),
        (None, None) => {}
    }
    Reply::FileContents { attr, data }
}
