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
    check_consistency(&builder)?;
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

    let ior = builder.into_ior();
    let both = !ior.write && !ior.read;
    let (write, read) = (ior.write || both, ior.read || both);
    Ok(Ior { id, reorder, stonewall, random_offsets, write, read, ..ior })
}

/// Options that contradict each other: whether they do, the options, the problem and the remedy.
type Conflict = (bool, &'static [OptionKey], String);

/// Refuses options that contradict each other. The error has the location of the last of them.
fn check_consistency(builder: &IorBuilder) -> Result<(), IorError> {
    let mut conflicts = size_conflicts(builder).into_iter().chain(option_conflicts(builder));
    match conflicts.find(|(applies, ..)| *applies) {
        None => Ok(()),
        Some((_, options, text)) => Err(match builder.location(options) {
            Some(location) => location.error(format_args!("{text}")),
            None => IorError::Invalid(text),
        }),
    }
}

fn size_conflicts(builder: &IorBuilder) -> [Conflict; 5] {
    use OptionKey::{Block, RandomOffset, Transfer};
    let (block, transfer) = (builder.ior().block.0, builder.ior().transfer.0);
    let unaligned = |name: &str, size: u64| {
        format!(
            "the {name} of {size} bytes is not a multiple of IOR's 8-byte words; \
             round it to a multiple of 8"
        )
    };
    let misfit = |relation: &str, remedy: &str| {
        format!(
            "the block size (-b) of {block} bytes is {relation} the transfer size (-t) \
             of {transfer} bytes; {remedy}"
        )
    };
    let whole = "each block consists of whole transfers: change one of them";
    [
        (block % WORD_BYTES != 0, &[Block], unaligned("block size (-b)", block)),
        (transfer % WORD_BYTES != 0, &[Transfer], unaligned("transfer size (-t)", transfer)),
        (block < transfer, &[Block, Transfer], misfit("smaller than", "raise -b or lower -t")),
        (block % transfer != 0, &[Block, Transfer], misfit("not a multiple of", whole)),
        (
            builder.random_offset > 0 && block == transfer,
            &[Block, Transfer, RandomOffset],
            "-z shuffles the transfers of a block, but a block is one transfer; \
             make -b a larger multiple of -t, or leave out -z"
                .into(),
        ),
    ]
}

fn option_conflicts(builder: &IorBuilder) -> [Conflict; 8] {
    use OptionKey::*;
    let ior = builder.ior();
    let shuffled = builder.random_offset > 0;
    let (constant, random) = (builder.reorder_constant > 0, builder.reorder_random > 0);
    let own_files = ior.file_per_process;
    let scattered = |option: &str| {
        format!(
            "-z and {option} on a shared file: with -z a task's data are scattered over the file; \
             use one of them, or -F"
        )
    };
    [
        (
            builder.random_offset > 1,
            &[RandomOffset],
            "-z twice (random offsets that may overlap) is not simulated; \
             use -z once: each offset once, in shuffled order"
                .into(),
        ),
        (
            constant && random,
            &[ReorderConstant, ReorderRandom],
            "-C and -Z both select the task whose data are read; use one of them".into(),
        ),
        (
            shuffled && ior.collective,
            &[RandomOffset, Collective],
            "-z and -c: collective transfers cannot have random offsets; use one of them".into(),
        ),
        (shuffled && !own_files && constant, &[RandomOffset, ReorderConstant], scattered("-C")),
        (shuffled && !own_files && random, &[RandomOffset, ReorderRandom], scattered("-Z")),
        (
            builder.wear_out && builder.deadline == 0,
            &[WearOut],
            "stoneWallingWearOut needs a deadline; add -D with a number of seconds".into(),
        ),
        (
            ior.unique_directory && own_files && ior.test_file.contains('@'),
            &[UniqueDirectory, TestFile],
            "-u and several file names (-o with @); use one of them".into(),
        ),
        (
            ior.test_file.split('@').any(str::is_empty),
            &[TestFile],
            format!(
                "one of the file names in `{}` is empty; give names on both sides of each @",
                ior.test_file
            ),
        ),
    ]
}

/// Adds notes about options that have no effect in combination with the others.
fn note_options_without_effect(builder: &mut IorBuilder) {
    let ior = builder.ior();
    let (no_reads, no_writes) = (ior.write && !ior.read, ior.read && !ior.write);
    let mpi_io = ior.api == Api::MpiIo;
    let (constant, random) = (builder.reorder_constant, builder.reorder_random);
    let nothing_shuffled = builder.random_offset == 0;
    let notes = [
        (ior.collective && !mpi_io, "-c", "POSIX has no collective transfers; it needs -a MPIIO"),
        (
            ior.collective && mpi_io && ior.file_per_process,
            "-c",
            "with -F no file is shared: no transfer is collective",
        ),
        (
            !ior.collective && mpi_io,
            "-a",
            "MPI-IO without -c is simulated as POSIX: the library costs no time",
        ),
        (ior.direct_io, "--posix.odirect", "the simulated client has no cache to bypass"),
        (
            ior.unique_directory && !ior.file_per_process,
            "-u",
            "a shared file has one directory; it needs -F",
        ),
        (
            builder.node_offset_given && constant == 0 && random != 1,
            "-Q",
            "it needs -C or a single -Z",
        ),
        (no_reads && constant > 0, "-C", "nothing is read; it needs -r"),
        (no_reads && random > 0, "-Z", "nothing is read; it needs -r"),
        (no_writes && ior.fsync, "-e", "nothing is written; it needs -w"),
        (no_writes && ior.fsync_per_write, "-Y", "nothing is written; it needs -w"),
        (no_writes && ior.use_existing, "-E", "nothing is written; it needs -w"),
        (
            ior.reorder_seed.is_some() && random == 0 && nothing_shuffled,
            "-X",
            "nothing is random; it needs -Z or -z",
        ),
        (
            ior.offset_seed.is_some() && nothing_shuffled,
            "--random-offset-seed",
            "no offsets are random; it needs -z",
        ),
    ];
    for (_, option, text) in notes.into_iter().filter(|(applies, ..)| *applies) {
        builder.note(option, format!("without effect here: {text}"));
    }
    if builder.ior().verbosity > 0 {
        builder.note("-v", format!("accepted without effect: {}", options::VERBOSE));
    }
    if builder.ior().reference_number != 0 {
        builder.note("-A", format!("accepted without effect: {}", options::REFERENCE));
    }
}
