use super::*;
use forebay_protocol::message::DirEntry;

const TTL: Duration = Duration::from_secs(1);
const DIR: Ino = Ino(7);

fn directory(ino: Ino) -> Attr {
    Attr { ino, kind: FileKind::Dir, nlink: 2, ..Attr::default() }
}

fn page(files: &[(u64, u32)]) -> Arc<DirPage> {
    let entry = |&(number, nlink): &(u64, u32)| {
        let ino = Ino(number);
        let attr = Some(Attr { ino, kind: FileKind::File, nlink, ..Attr::default() });
        DirEntry { cookie: number, name: vec![b'f'], ino, kind: FileKind::File, attr }
    };
    let entries = files.iter().map(entry).collect();
    Arc::new(DirPage { entries, end: true, next_cookie: 1000, ttl: TTL })
}

/// A cache with the attributes of `DIR` and a listing with the files 20 and 21.
fn filled(now: Instant) -> AttributeCache {
    let cache = AttributeCache::default();
    fill(&cache, cache.moment(), now);
    cache
}

fn fill(cache: &AttributeCache, read_at: Moment, now: Instant) {
    cache.remember_attributes(&directory(DIR), read_at, now + TTL);
    cache.remember_listing(DIR, &page(&[(20, 1), (21, 1)]), read_at, now + TTL);
}

/// Whether the attributes and the listing of `DIR` are known.
fn known(cache: &AttributeCache, now: Instant) -> (bool, bool) {
    (cache.attributes(DIR, now).is_some(), cache.listing(DIR, now).is_some())
}

#[test]
fn contents_are_known_until_the_lease_expires_or_is_recalled() {
    let now = Instant::now();
    let cache = filled(now);
    let left = cache.attributes(DIR, now + TTL / 4).map(|(_, ttl)| ttl);
    assert_eq!(left, Some(TTL * 3 / 4));
    assert_eq!(cache.listing(DIR, now + TTL / 4).map(|(_, ttl)| ttl), Some(TTL * 3 / 4));
    assert_eq!(known(&cache, now + TTL), (false, false));
    let before = cache.moment();
    cache.clear();
    assert_eq!(known(&cache, now), (false, false));
    fill(&cache, before, now);
    assert_eq!(known(&cache, now), (false, false), "it was read before the recall");
    fill(&cache, cache.moment(), now);
    assert_eq!(known(&cache, now), (true, true));
}

#[test]
fn nothing_is_answered_or_cached_during_a_change() {
    let now = Instant::now();
    // Changes of the directory, of a file in it, and of unknown inodes; and what is known after them.
    type Begin = fn(&AttributeCache) -> Change;
    let changes: [(Begin, (bool, bool)); 4] = [
        (|cache| cache.change([DIR]), (false, false)),
        (|cache| cache.change([Ino(21)]), (true, false)),
        (|cache| cache.change_any(), (false, false)),
        (|cache| cache.change([Ino(1), Ino(2)]), (true, true)),
    ];
    for (begin, expected) in changes {
        let cache = filled(now);
        let before = cache.moment();
        let (first, second) = (begin(&cache), begin(&cache));
        assert_eq!(known(&cache, now), expected);
        drop(first);
        fill(&cache, cache.moment(), now);
        assert_eq!(known(&cache, now), expected, "another change is under way");
        let during = cache.moment();
        drop(second);
        for read_at in [before, during] {
            fill(&cache, read_at, now);
            assert_eq!(known(&cache, now), expected, "it was read before the end of the change");
        }
        fill(&cache, cache.moment(), now);
        assert_eq!(known(&cache, now), (true, true));
        assert!(cache.0.lock().changing.is_empty());
    }
}

#[test]
fn listings_with_attributes_that_change_by_other_names_are_not_cached() {
    let (cache, now) = (AttributeCache::default(), Instant::now());
    let incomplete = Arc::new(DirPage { end: false, ..DirPage::clone(&page(&[(20, 1)])) });
    for page in [page(&[(20, 1), (21, 2)]), incomplete] {
        cache.remember_listing(DIR, &page, cache.moment(), now + TTL);
        assert!(cache.listing(DIR, now).is_none());
    }
    let file = Attr { ino: Ino(20), kind: FileKind::File, ..Attr::default() };
    cache.remember_attributes(&file, cache.moment(), now + TTL);
    assert!(cache.attributes(Ino(20), now).is_none());
}

#[test]
fn cache_is_limited() {
    let (cache, now) = (filled(Instant::now()), Instant::now());
    for number in 0..2 * MAX_CHANGED as u64 {
        drop(cache.change([Ino(100 + number)]));
        let is_limited = {
            let state = cache.0.lock();
            state.changed_at.len() <= MAX_CHANGED && state.changing.is_empty()
        };
        assert!(is_limited);
    }
    assert_eq!(known(&cache, now), (false, false));
    let files: Vec<(u64, u32)> = (0..MAX_ENTRIES as u64 / 4).map(|number| (number, 1)).collect();
    let large = page(&files);
    for number in 0..10 {
        cache.remember_listing(Ino(1 << 20 | number), &large, cache.moment(), now + TTL);
        let state = cache.0.lock();
        let entries: usize =
            state.listings.values().map(|known| known.value.page.entries.len()).sum();
        assert!(entries == state.entries && entries <= MAX_ENTRIES && entries > 0);
    }
    for number in 0..2 * MAX_DIRECTORIES as u64 {
        let attr = directory(Ino(number));
        cache.remember_attributes(&attr, cache.moment(), now + TTL);
    }
    assert_eq!(cache.0.lock().attributes.len(), MAX_DIRECTORIES);
}

#[test]
fn attributes_in_the_reply_to_the_only_change_are_known_after_it() {
    let now = Instant::now();
    let after = |disturb: fn(&AttributeCache) -> Option<Change>| {
        let cache = filled(now);
        let change = cache.change([DIR]);
        let other = disturb(&cache);
        cache.note_changed_directory(&Attr { size: 3, ..directory(DIR) }, now + TTL);
        assert_eq!(known(&cache, now), (false, false), "the change is under way");
        drop(change);
        drop(other);
        cache.attributes(DIR, now).map(|(attr, _)| attr.size)
    };
    assert_eq!(after(|_| None), Some(3));
    assert_eq!(after(|cache| Some(cache.change([Ino(8)]))), Some(3), "another inode changes");
    assert_eq!(after(|cache| Some(cache.change([DIR]))), None, "two changes overlap");
    let ended = |cache: &AttributeCache| {
        drop(cache.change([DIR]));
        None
    };
    assert_eq!(after(ended), None, "another change of it has ended meanwhile");
    assert_eq!(after(|cache| Some(cache.change_any())), None, "anything may change");
    let recall = |cache: &AttributeCache| {
        cache.clear();
        None
    };
    assert_eq!(after(recall), None, "the lease was recalled");
    let cache = filled(now);
    cache.note_changed_directory(&Attr { size: 3, ..directory(DIR) }, now + TTL);
    assert_eq!(cache.attributes(DIR, now).map(|(attr, _)| attr.size), Some(0), "no change");
    drop(cache.change([DIR]));
    assert_eq!(known(&cache, now), (false, false), "the reply came before the change");
}

#[test]
fn entries_of_a_listing_are_known_by_name_and_inode() {
    let now = Instant::now();
    let cache = AttributeCache::default();
    let mut files = page(&[(20, 1), (21, 1)]);
    Arc::make_mut(&mut files).entries[1].name = vec![b'g'];
    let found = |name: &[u8], ino| {
        let entry = cache.entry(DIR, name, now).map(|(attr, _)| attr.map(|attr| attr.ino));
        let attributes = cache.listed_attributes(DIR, ino, now).map(|(attr, _)| attr.ino);
        (entry, attributes)
    };
    assert_eq!(found(b"f", Ino(20)), (None, None), "nothing was read");
    let read_at = cache.moment();
    let open = cache.change([Ino(21)]);
    assert!(cache.is_changing(Ino(21)) && !cache.is_changing(Ino(20)));
    assert!(cache.remember_listing(DIR, &files, read_at, now + TTL));
    assert_eq!(found(b"f", Ino(20)), (Some(Some(Ino(20))), Some(Ino(20))));
    assert_eq!(found(b"g", Ino(21)), (None, None), "it is changing");
    assert_eq!(found(b"h", Ino(22)), (Some(None), None), "there is no such name");
    drop(open);
    assert_eq!(found(b"g", Ino(21)), (None, None), "it was read before the change");
    assert_eq!(cache.listing(DIR, now).map(|_| ()), None, "it has a changed inode");
    assert_eq!(cache.entry(DIR, b"f", now + TTL), None, "the lease has expired");
    drop(cache.change([DIR]));
    assert_eq!(found(b"f", Ino(20)), (None, None), "names may have changed");
    assert!(!cache.remember_listing(DIR, &files, read_at, now + TTL));
    assert!(cache.remember_listing(DIR, &files, cache.moment(), now + TTL));
    assert_eq!(found(b"g", Ino(21)), (Some(Some(Ino(21))), Some(Ino(21))));
    let any = cache.change_any();
    assert_eq!(found(b"g", Ino(21)), (None, None));
    drop(any);
    assert_eq!(found(b"g", Ino(21)), (None, None));
}

#[test]
fn listing_answers_for_other_names_after_entries_were_created_and_removed() {
    let now = Instant::now();
    let cache = AttributeCache::default();
    let mut files = page(&[(20, 1), (21, 1)]);
    Arc::make_mut(&mut files).entries[1].name = vec![b'g'];
    assert!(cache.remember_listing(DIR, &files, cache.moment(), now + TTL));
    let found =
        |name: &[u8]| cache.entry(DIR, name, now).map(|(attr, _)| attr.map(|attr| attr.ino));
    let change = cache.change_entry(DIR);
    assert_eq!((found(b"f"), found(b"h")), (None, None), "an entry is changing");
    change.removed(b"f");
    drop(change);
    assert_eq!((found(b"f"), found(b"g")), (Some(None), Some(Some(Ino(21)))));
    assert_eq!(cache.listed_attributes(DIR, Ino(20), now), None, "it has no name");
    assert!(cache.listed_attributes(DIR, Ino(21), now).is_some());
    assert!(cache.listing(DIR, now).is_none(), "it has a removed entry");
    let change = cache.change_entry(DIR);
    change.created(b"h");
    drop(change);
    assert_eq!((found(b"h"), found(b"i")), (None, Some(None)), "its attributes are not known");
    let change = cache.change_entry(DIR);
    change.removed(b"h");
    drop(change);
    assert_eq!((found(b"h"), found(b"g")), (Some(None), Some(Some(Ino(21)))));
    drop(cache.change([Ino(21)]));
    assert_eq!((found(b"g"), found(b"f")), (None, Some(None)), "the file has changed");
    let failed = cache.change_entry(DIR);
    drop(failed);
    assert_eq!(found(b"f"), None, "it is not known whether anything has changed");
}

#[test]
fn listing_is_dropped_by_overlapping_changes_and_recalls() {
    let now = Instant::now();
    let is_known = |act: fn(&AttributeCache)| {
        let cache = filled(now);
        let change = cache.change_entry(DIR);
        change.created(b"h");
        act(&cache);
        drop(change);
        assert!(cache.0.lock().entries == 0 || cache.entry(DIR, b"x", now).is_some());
        cache.entry(DIR, b"x", now).is_some()
    };
    assert!(is_known(|_| {}));
    assert!(!is_known(|cache| cache.clear()), "a recall");
    assert!(!is_known(|cache| drop(cache.change([DIR]))), "another change of the directory");
    assert!(!is_known(|cache| drop(cache.change_entry(DIR))), "another change of an entry");
    assert!(!is_known(|cache| drop(cache.change_any())), "a change of unknown inodes");
}
