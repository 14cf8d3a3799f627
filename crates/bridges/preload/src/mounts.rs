//! The mounts of instances, from `/proc/self/mountinfo`.

/// A mount of an instance that files may be opened through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceMount {
    /// The mount point.
    pub point: Vec<u8>,
    /// Mount points below it.
    pub nested: Vec<Vec<u8>>,
}

/// A line of mountinfo.
struct Line {
    point: Vec<u8>,
    is_instance: bool,
}

/// The writable mounts of instances that root or `user` has mounted.
pub fn parse(mountinfo: &[u8], user: u32) -> Vec<InstanceMount> {
    let lines = mountinfo.split(|byte| *byte == b'\n');
    let lines: Vec<Line> = lines.filter_map(|line| parse_line(line, user)).collect();
    let is_hidden =
        |index: usize, point: &[u8]| lines[index + 1..].iter().any(|l| l.point == point);
    let mounts = lines.iter().enumerate().filter(|(_, line)| line.is_instance);
    let mounts = mounts.filter(|(index, line)| !is_hidden(*index, &line.point));
    let nested = |point: &[u8]| {
        let below = lines.iter().filter(|line| crate::path::below(&line.point, point).is_some());
        below.map(|line| line.point.clone()).collect()
    };
    mounts
        .map(|(_, line)| InstanceMount { point: line.point.clone(), nested: nested(&line.point) })
        .collect()
}

fn parse_line(line: &[u8], user: u32) -> Option<Line> {
    let mut fields = line.split(|byte| *byte == b' ');
    let root = fields.nth(3)?;
    let point = unescape(fields.next()?);
    let options = fields.next()?;
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = rest.next()?;
    let source = rest.next()?;
    let super_options = rest.next().unwrap_or_default();
    let mut super_options = super_options.split(|byte| *byte == b',');
    let owner = super_options.find_map(|option| option.strip_prefix(b"user_id="));
    let owner: Option<u32> = owner.and_then(|id| std::str::from_utf8(id).ok()?.parse().ok());
    let is_writable = options.split(|byte| *byte == b',').any(|option| option == b"rw");
    let is_trusted = owner.is_some_and(|owner| owner == 0 || owner == user);
    // A mount of root has no subtype.
    let is_ours = kind == b"fuse.forebay" || kind == b"fuse" && source.starts_with(b"forebay");
    let is_instance = is_ours && root == b"/" && is_writable && is_trusted;
    Some(Line { point, is_instance })
}

/// Replaces `\040` and other octal escapes.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|digits| *first == b'\\' && digits.iter().all(is_octal));
        match octal {
            Some(digits) => {
                let value =
                    digits.iter().fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0'));
                result.push(value as u8);
                rest = &tail[3..];
            }
            None => {
                result.push(*first);
                rest = tail;
            }
        }
    }
    result
}

fn is_octal(byte: &u8) -> bool {
    (b'0'..=b'7').contains(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &str = "\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
40 22 0:40 / /mnt/job\\0401 rw,nosuid - fuse forebay-1 rw,user_id=0,group_id=0,allow_other
41 40 0:41 / /mnt/job\\0401/scratch rw - tmpfs tmpfs rw
42 22 0:42 / /mnt/mine rw - fuse.forebay forebay-2 rw,user_id=1000,group_id=1000
43 22 0:43 / /mnt/other rw - fuse.forebay forebay-3 rw,user_id=1001,group_id=1001
44 22 0:44 / /mnt/replica ro - fuse.forebay forebay-4 rw,user_id=0,group_id=0
45 22 0:45 /sub /mnt/part rw - fuse.forebay forebay-5 rw,user_id=0,group_id=0
46 22 0:46 / /mnt/covered rw - fuse.forebay forebay-6 rw,user_id=0,group_id=0
47 22 0:47 / /mnt/covered rw - tmpfs tmpfs rw
48 22 0:48 / /mnt/other-fuse rw - fuse sshfs rw,user_id=0,group_id=0
";

    #[test]
    fn only_whole_writable_visible_mounts_of_root_or_the_user_are_used() {
        let mounts = parse(MOUNTINFO.as_bytes(), 1000);
        let expected = [
            InstanceMount {
                point: b"/mnt/job 1".to_vec(),
                nested: vec![b"/mnt/job 1/scratch".to_vec()],
            },
            InstanceMount { point: b"/mnt/mine".to_vec(), nested: Vec::new() },
        ];
        assert_eq!(mounts, expected);
    }
}
