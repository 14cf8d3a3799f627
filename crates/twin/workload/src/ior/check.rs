//! Consistency checks of options, as in IOR.

use super::builder::IorBuilder;
use super::error::IorError;
use super::options::{self, OptionKey};
use super::spec::{Api, Ior, Reorder, Stonewall};

/// IOR moves data in words of eight bytes: sizes are multiples of that.
const WORD_BYTES: u64 = 8;

/// Completes test number `id`.
///
/// # Errors
/// The first inconsistency of its options.
pub(super) fn finish_test(mut builder: IorBuilder, id: u32) -> Result<Ior, IorError> {
    check_sizes(&builder)?;
    check_combinations(&builder)?;
    note_options_without_effect(&mut builder);

    let reorder = match (builder.reorder_constant, builder.reorder_random) {
        (0, 0) => Reorder::Own,
        (_, 0) => Reorder::Constant,
        (_, 1) => Reorder::Random,
        (_, _) => Reorder::Shuffle,
    };
    let stonewall = (builder.deadline > 0)
        .then_some(Stonewall { seconds: builder.deadline, wear_out: builder.wear_out });
    let random_offsets = builder.random_offset > 0;

    let mut ior = builder.into_ior();
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

fn conflict(builder: &IorBuilder, keys: &[OptionKey], what: String, right: &str) -> IorError {
    IorError::Conflict { location: builder.location(keys), what, right: right.to_string() }
}

fn check_sizes(builder: &IorBuilder) -> Result<(), IorError> {
    let ior = builder.ior();
    let (block, transfer) = (ior.block.0, ior.transfer.0);
    for (size, key, name) in [
        (block, OptionKey::Block, "block size (-b)"),
        (transfer, OptionKey::Transfer, "transfer size (-t)"),
    ] {
        if size % WORD_BYTES != 0 {
            return Err(conflict(
                builder,
                &[key],
                format!("the {name} of {size} bytes is not a multiple of IOR's 8-byte words"),
                "round it to a multiple of 8",
            ));
        }
    }
    let both = [OptionKey::Block, OptionKey::Transfer];
    if block < transfer {
        return Err(conflict(
            builder,
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
            builder,
            &both,
            format!(
                "the block size (-b) of {block} bytes is not a multiple of the transfer size (-t) \
                 of {transfer} bytes"
            ),
            "each block consists of whole transfers: change one of them",
        ));
    }
    if builder.random_offset > 0 && block == transfer {
        return Err(conflict(
            builder,
            &[OptionKey::Block, OptionKey::Transfer, OptionKey::RandomOffset],
            "-z shuffles the transfers of a block, but a block is one transfer".to_string(),
            "make -b a larger multiple of -t, or leave out -z",
        ));
    }
    Ok(())
}

fn check_combinations(builder: &IorBuilder) -> Result<(), IorError> {
    let ior = builder.ior();
    let shared = !ior.file_per_process;
    if builder.random_offset > 1 {
        return Err(conflict(
            builder,
            &[OptionKey::RandomOffset],
            "-z twice (random offsets that may overlap) is not simulated".to_string(),
            "use -z once: each offset once, in shuffled order",
        ));
    }
    if builder.reorder_constant > 0 && builder.reorder_random > 0 {
        return Err(conflict(
            builder,
            &[OptionKey::ReorderConstant, OptionKey::ReorderRandom],
            "-C and -Z both select the task whose data are read".to_string(),
            "use one of them",
        ));
    }
    if builder.random_offset > 0 && ior.collective {
        return Err(conflict(
            builder,
            &[OptionKey::RandomOffset, OptionKey::Collective],
            "-z and -c: collective transfers cannot have random offsets".to_string(),
            "use one of them",
        ));
    }
    for (count, key, name) in [
        (builder.reorder_constant, OptionKey::ReorderConstant, "-C"),
        (builder.reorder_random, OptionKey::ReorderRandom, "-Z"),
    ] {
        if builder.random_offset > 0 && shared && count > 0 {
            return Err(conflict(
                builder,
                &[OptionKey::RandomOffset, key],
                format!(
                    "-z and {name} on a shared file: with -z a task's data are scattered over the file"
                ),
                "use one of them, or -F",
            ));
        }
    }
    if builder.wear_out && builder.deadline == 0 {
        return Err(conflict(
            builder,
            &[OptionKey::WearOut],
            "stoneWallingWearOut needs a deadline".to_string(),
            "add -D with a number of seconds",
        ));
    }
    if ior.unique_directory && ior.file_per_process && ior.test_file.contains('@') {
        return Err(conflict(
            builder,
            &[OptionKey::UniqueDirectory, OptionKey::TestFile],
            "-u and several file names (-o with @)".to_string(),
            "use one of them",
        ));
    }
    if ior.test_file.split('@').any(str::is_empty) {
        return Err(conflict(
            builder,
            &[OptionKey::TestFile],
            format!("one of the file names in `{}` is empty", ior.test_file),
            "give names on both sides of each @",
        ));
    }
    Ok(())
}

/// Adds notes about options that have no effect in combination with the others.
fn note_options_without_effect(builder: &mut IorBuilder) {
    let ior = builder.ior();
    let (reads, writes) = (ior.read || !ior.write, ior.write || !ior.read);
    let mut notes = Vec::new();
    if ior.collective && ior.api == Api::Posix {
        notes.push(("-c", "POSIX has no collective transfers; it needs -a MPIIO"));
    }
    if ior.collective && ior.api == Api::MpiIo && ior.file_per_process {
        notes.push(("-c", "with -F no file is shared: no transfer is collective"));
    }
    if !ior.collective && ior.api == Api::MpiIo {
        notes.push(("-a", "MPI-IO without -c is simulated as POSIX: the library costs no time"));
    }
    if ior.direct_io {
        notes.push(("--posix.odirect", "the simulated client has no cache to bypass"));
    }
    if ior.unique_directory && !ior.file_per_process {
        notes.push(("-u", "a shared file has one directory; it needs -F"));
    }
    if builder.node_offset_given && builder.reorder_constant == 0 && builder.reorder_random != 1 {
        notes.push(("-Q", "it needs -C or a single -Z"));
    }
    if !reads && builder.reorder_constant > 0 {
        notes.push(("-C", "nothing is read; it needs -r"));
    }
    if !reads && builder.reorder_random > 0 {
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
    if ior.reorder_seed.is_some() && builder.reorder_random == 0 && builder.random_offset == 0 {
        notes.push(("-X", "nothing is random; it needs -Z or -z"));
    }
    if ior.offset_seed.is_some() && builder.random_offset == 0 {
        notes.push(("--random-offset-seed", "no offsets are random; it needs -z"));
    }
    for (option, text) in notes {
        builder.note(option, format!("without effect here: {text}"));
    }
    if builder.ior().verbosity > 0 {
        builder.note("-v", format!("accepted without effect: {}", options::VERBOSE));
    }
    if builder.ior().reference_number != 0 {
        builder.note("-A", format!("accepted without effect: {}", options::REFERENCE));
    }
}
