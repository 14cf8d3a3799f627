use super::*;

/// A list in the notation of `setfacl`, with numbers.
fn list(text: &str) -> Vec<u8> {
    let mut value = VERSION.to_le_bytes().to_vec();
    for entry in text.split(',') {
        let fields: Vec<&str> = entry.split(':').collect();
        let [kind, id, permissions] = fields[..] else { panic!("{entry}") };
        let tag = match (kind, id) {
            ("u", "") => Tag::Owner,
            ("u", _) => Tag::User,
            ("g", "") => Tag::OwningGroup,
            ("g", _) => Tag::Group,
            ("m", _) => Tag::Mask,
            _ => Tag::Others,
        };
        value.extend((tag as u16).to_le_bytes());
        value.extend(permissions.parse::<u16>().unwrap().to_le_bytes());
        value.extend(id.parse::<u32>().unwrap_or(NO_ID).to_le_bytes());
    }
    value
}

fn parsed(text: &str) -> Acl {
    Acl::parse(&list(text)).unwrap().unwrap()
}

fn user(uid: u32, groups: Option<&[u32]>) -> Credentials {
    Credentials { uid, gid: uid, groups: groups.map(<[u32]>::to_vec), checked: false }
}

#[test]
fn lists_are_validated() {
    for text in ["u::7,g::5,o::0", "u::7,u:5:4,u:6:1,g::5,g:9:2,m::7,o::0", "u::0,g::0,m::0,o::0"] {
        assert_eq!(parsed(text).value(), list(text));
    }
    for text in [
        "u::7",
        "u::7,g::5",
        "g::5,o::0",
        "u::7,o::0,g::5",
        "u::7,u::7,g::5,o::0",
        "u::7,g::5,o::0,o::0",
        "u::8,g::5,o::0",
        "u::7,u:5:4,g::5,o::0",
        "u::7,g::5,g:5:4,o::0",
        "u::7,g::5,u:5:4,m::7,o::0",
        "u::7,g::5,m::7,m::7,o::0",
        "u::7,u:4294967295:4,g::5,m::7,o::0",
    ] {
        assert_eq!(Acl::parse(&list(text)), Err(Errno::EINVAL), "{text}");
    }
    assert_eq!(Acl::parse(NO_ENTRIES), Ok(None));
    assert_eq!(Acl::parse(b""), Err(Errno::EINVAL));
    assert_eq!(Acl::parse(&[3, 0, 0, 0]), Err(Errno::EOPNOTSUPP));
    let valid = list("u::7,g::5,o::0");
    assert_eq!(Acl::parse(&valid[..valid.len() - 1]), Err(Errno::EINVAL));
    let users: String = (0..MAX_ACL_BYTES / ENTRY_BYTES).map(|id| format!("u:{id}:7,")).collect();
    let long = format!("u::7,{users}g::7,m::7,o::7");
    assert_eq!(Acl::parse(&list(&long)), Err(Errno::E2BIG));
}

#[test]
fn mode_and_list_follow_each_other() {
    let mut with_mask = parsed("u::7,u:5:4,g::5,m::6,o::1");
    assert_eq!(with_mask.permissions(), 0o761);
    with_mask.set_permissions(0o4530);
    assert_eq!(with_mask, parsed("u::5,u:5:4,g::5,m::3,o::0"));
    let mut minimal = parsed("u::7,g::5,o::1");
    minimal.set_permissions(0o640);
    assert_eq!((minimal.permissions(), minimal.is_mode()), (0o640, true));
}

#[test]
fn new_inodes_inherit_the_default_list_without_what_their_mode_lacks() {
    let default = list("u::7,u:5:6,g::5,m::7,o::4");
    let (file, mode) = InheritedAcls::of_default(&default, 0o2660, false).unwrap();
    assert_eq!(mode, 0o2660);
    assert_eq!(file.0, [(ACCESS_ACL.to_vec(), list("u::6,u:5:6,g::5,m::6,o::0"))]);
    let (dir, mode) = InheritedAcls::of_default(&default, 0o777, true).unwrap();
    assert_eq!(mode, 0o774);
    assert_eq!(dir.0, [(ACCESS_ACL.to_vec(), default.clone()), (DEFAULT_ACL.to_vec(), default)]);
    let minimal = list("u::7,g::5,o::0");
    let (plain, mode) = InheritedAcls::of_default(&minimal, 0o666, false).unwrap();
    assert_eq!((plain, mode), (InheritedAcls::default(), 0o640));
}

#[test]
fn first_entry_that_applies_decides_within_the_mask() {
    let acl = parsed("u::7,u:5:6,u:6:0,g::4,g:30:2,g:31:7,m::6,o::1");
    let permits = |uid, groups: &[u32], want| acl.permits(&user(uid, Some(groups)), 20, want);
    for (uid, groups, want, expected) in [
        (5, &[][..], 6, true),
        (5, &[31], 1, false),
        (6, &[20, 31], 4, false),
        (7, &[20], 4, true),
        (7, &[20], 2, false),
        // One entry of a group must permit everything.
        (7, &[20, 30], 6, false),
        (7, &[20, 31], 6, true),
        (7, &[31], 1, false),
        (7, &[30], 1, false),
        (8, &[], 1, true),
        (8, &[], 4, false),
    ] {
        assert_eq!(permits(uid, groups, want), Ok(expected), "{uid} {groups:?} {want}");
    }
    // Groups do not matter for a named user.
    assert_eq!(acl.permits(&user(5, None), 20, 4), Ok(true));
    assert_eq!(acl.permits(&user(7, None), 20, 4), Err(Errno::EGROUPS));
}

#[test]
fn copy_without_a_list_permits_nobody_more_than_the_list_did() {
    let cases = [
        ("u::6,u:7:6,g::0,m::6,o::0", 0o660, 0o600),
        ("u::7,u:7:7,g::5,m::7,o::5", 0o2775, 0o2755),
        // A user whom the list refuses is in the group, or among all others.
        ("u::7,u:7:0,g::5,m::5,o::5", 0o755, 0o700),
        ("u::7,g::5,g:7:4,m::5,o::5", 0o755, 0o754),
        // The mask limits what the list says.
        ("u::6,u:7:6,g::6,m::4,o::6", 0o646, 0o644),
        ("u::6,g::4,o::4", 0o644, 0o644),
    ];
    for (text, mode, expected) in cases {
        let without = mode_without_list(&list(text), mode);
        assert_eq!(without, expected, "{without:o} for {text} with mode {mode:o}");
    }
    for damaged in [&b""[..], b"\x02\0", b"\x02\0\0\0\x01"] {
        assert_eq!(mode_without_list(damaged, 0o4775), 0o4700);
    }
}
