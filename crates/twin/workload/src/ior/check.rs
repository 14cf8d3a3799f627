//! Options checked against each other, as IOR does before it runs.

use super::builder::IorBuilder;
use super::error::IorError;
use super::options::OptionKey;
use super::{Api, Ior, Reorder, Stonewall, options};

/// IOR moves data in words of eight bytes: sizes are multiples of it.
const WORD: u64 = 8;

/// Gives the test, or the first thing in which its options contradict each other.
pub(super) fn finish(mut draft: IorBuilder, id: u32) -> Result<Ior, IorError> {
    sizes(&draft)?;
    together(&draft)?;
    without_effect(&mut draft);

    let reorder = match (draft.reorder_constant, draft.reorder_random) {
        (0, 0) => Reorder::Own,
        (_, 0) => Reorder::Constant,
        (_, 1) => Reorder::Random,
        (_, _) => Reorder::Shuffle,
    };
    let stonewall = (draft.deadline > 0).then_some(Stonewall {
        seconds: draft.deadline,
        wear_out: draft.wear_out,
    });
    let random_offsets = draft.random_offset > 0;

    let mut ior = draft.into_ior();
    ior.id = id;
    ior.reorder = reorder;
    ior.stonewall = stonewall;
    ior.random_offsets = random_offsets;
    if !ior.write && !ior.read {
        ior.write = true;
        ior.read = true;
    }
    Ok(ior)
}

fn conflict(draft: &IorBuilder, keys: &[OptionKey], what: String, right: &str) -> IorError {
    IorError::Conflict {
        place: draft.place(keys),
        what,
        right: right.to_string(),
    }
}

fn sizes(draft: &IorBuilder) -> Result<(), IorError> {
    let ior = draft.ior();
    let (block, transfer) = (ior.block.0, ior.transfer.0);
    for (size, key, name) in [
        (block, OptionKey::Block, "block size (-b)"),
        (transfer, OptionKey::Transfer, "transfer size (-t)"),
    ] {
        if size % WORD != 0 {
            return Err(conflict(
                draft,
                &[key],
                format!("the {name} of {size} bytes is not a multiple of IOR's 8-byte words"),
                "round it to a multiple of 8",
            ));
        }
    }
    let both = [OptionKey::Block, OptionKey::Transfer];
    if block < transfer {
        return Err(conflict(
            draft,
            &both,
            format!(
                "the block size (-b) of {block} bytes is smaller than the transfer size (-t) \
                 of {transfer} bytes"
            ),
            "raise -b or lower -t",
        ));
    }
    if block % transfer != 0 {
        return Err(conflict(
            draft,
            &both,
            format!(
                "the block size (-b) of {block} bytes is not a multiple of the transfer size (-t) \
                 of {transfer} bytes"
            ),
            "each block is moved in whole transfers: change one of them",
        ));
    }
    if draft.random_offset > 0 && block == transfer {
        return Err(conflict(
            draft,
            &[
                OptionKey::Block,
                OptionKey::Transfer,
                OptionKey::RandomOffset,
            ],
            "-z shuffles the transfers of a block, and here a block is one transfer".to_string(),
            "make -b a larger multiple of -t, or leave out -z",
        ));
    }
    Ok(())
}

fn together(draft: &IorBuilder) -> Result<(), IorError> {
    let ior = draft.ior();
    let shared = !ior.file_per_process;
    if draft.random_offset > 1 {
        return Err(conflict(
            draft,
            &[OptionKey::RandomOffset],
            "-z twice, random offsets that may overlap, is not simulated".to_string(),
            "give it once, for each offset once in shuffled order",
        ));
    }
    if draft.reorder_constant > 0 && draft.reorder_random > 0 {
        return Err(conflict(
            draft,
            &[OptionKey::ReorderConstant, OptionKey::ReorderRandom],
            "-C and -Z both say whose data are read".to_string(),
            "give one of them",
        ));
    }
    if draft.random_offset > 0 && ior.collective {
        return Err(conflict(
            draft,
            &[OptionKey::RandomOffset, OptionKey::Collective],
            "-z and -c: collective transfers cannot be at random offsets".to_string(),
            "give one of them",
        ));
    }
    for (count, key, name) in [
        (draft.reorder_constant, OptionKey::ReorderConstant, "-C"),
        (draft.reorder_random, OptionKey::ReorderRandom, "-Z"),
    ] {
        if draft.random_offset > 0 && shared && count > 0 {
            return Err(conflict(
                draft,
                &[OptionKey::RandomOffset, key],
                format!(
                    "-z and {name} on a shared file: with -z a task's data are all over the file"
                ),
                "give one of them, or -F",
            ));
        }
    }
    if draft.wear_out && draft.deadline == 0 {
        return Err(conflict(
            draft,
            &[OptionKey::WearOut],
            "stoneWallingWearOut has nothing to wear out without a deadline".to_string(),
            "add -D with a number of seconds",
        ));
    }
    if ior.unique_directory && ior.file_per_process && ior.test_file.contains('@') {
        return Err(conflict(
            draft,
            &[OptionKey::UniqueDirectory, OptionKey::TestFile],
            "-u and several file names (-o with @)".to_string(),
            "give one of them",
        ));
    }
    if ior.test_file.split('@').any(str::is_empty) {
        return Err(conflict(
            draft,
            &[OptionKey::TestFile],
            format!("one of the file names in `{}` is empty", ior.test_file),
            "give names on both sides of each @",
        ));
    }
    Ok(())
}

/// Notes options that change nothing beside the others given.
fn without_effect(draft: &mut IorBuilder) {
    let ior = draft.ior();
    let (reads, writes) = (ior.read || !ior.write, ior.write || !ior.read);
    let mut notes = Vec::new();
    if ior.collective && ior.api == Api::Posix {
        notes.push(("-c", "POSIX has no collective transfers; it needs -a MPIIO"));
    }
    if ior.collective && ior.api == Api::MpiIo && ior.file_per_process {
        notes.push((
            "-c",
            "with -F each process has its file to itself: there is nobody to be collective with",
        ));
    }
    if !ior.collective && ior.api == Api::MpiIo {
        notes.push((
            "-a",
            "MPI-IO without -c is simulated as POSIX: the library itself costs no time here",
        ));
    }
    if ior.direct_io {
        notes.push((
            "--posix.odirect",
            "the simulated client keeps no cache that it could go past",
        ));
    }
    if ior.unique_directory && !ior.file_per_process {
        notes.push(("-u", "a shared file has one directory; it needs -F"));
    }
    if draft.node_offset_given && draft.reorder_constant == 0 && draft.reorder_random != 1 {
        notes.push((
            "-Q",
            "there is no distance to keep; it needs -C or a single -Z",
        ));
    }
    if !reads && draft.reorder_constant > 0 {
        notes.push(("-C", "nothing is read; it needs -r"));
    }
    if !reads && draft.reorder_random > 0 {
        notes.push(("-Z", "nothing is read; it needs -r"));
    }
    if !writes && ior.fsync {
        notes.push(("-e", "nothing is written; it needs -w"));
    }
    if !writes && ior.fsync_per_write {
        notes.push(("-Y", "nothing is written; it needs -w"));
    }
    if !writes && ior.use_existing {
        notes.push(("-E", "nothing is written; it needs -w"));
    }
    if ior.reorder_seed.is_some() && draft.reorder_random == 0 && draft.random_offset == 0 {
        notes.push(("-X", "nothing is random; it needs -Z or -z"));
    }
    if ior.offset_seed.is_some() && draft.random_offset == 0 {
        notes.push(("--random-offset-seed", "no offsets are random; it needs -z"));
    }
    for (option, text) in notes {
        draft.note(option, format!("without effect here: {text}"));
    }
    if draft.ior().verbosity > 0 {
        draft.note("-v", format!("taken without effect: {}", options::VERBOSE));
    }
    if draft.ior().reference_number != 0 {
        draft.note(
            "-A",
            format!("taken without effect: {}", options::REFERENCE),
        );
    }
}
