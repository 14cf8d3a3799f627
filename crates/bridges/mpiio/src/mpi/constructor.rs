//! The constructors of datatypes of MPI, and their arguments.

use super::communicator::check;
use super::symbols::Symbol;
use super::{Flavour, Handle, MpiError, functions, library};
use std::ffi::{c_int, c_void};

/// Constructors of datatypes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combiner {
    /// A predefined type, or one made from a precision (`MPI_Type_create_f90_real`).
    Named,
    Dup,
    Contiguous,
    Vector,
    HVector,
    Indexed,
    HIndexed,
    IndexedBlock,
    HIndexedBlock,
    Struct,
    Subarray,
    Darray,
    Resized,
}

/// Numbers of arguments of a constructor, and the constructor.
pub struct Envelope {
    pub integers: usize,
    pub addresses: usize,
    pub large_counts: usize,
    pub datatypes: usize,
    pub combiner: Combiner,
}

/// Arguments of a constructor.
pub struct Contents {
    pub integers: Vec<i64>,
    pub addresses: Vec<i64>,
    pub large_counts: Vec<i64>,
    pub datatypes: Vec<Derived>,
}

/// A datatype that the MPI library returned as an argument of a constructor.
pub struct Derived {
    pub handle: Handle,
    pub combiner: Combiner,
}

impl Drop for Derived {
    /// Predefined types must not be freed, all others must.
    fn drop(&mut self) {
        if self.combiner != Combiner::Named {
            // SAFETY: the handle came from `MPI_Type_get_contents`, and is not used after this.
            unsafe { functions::type_free(&mut self.handle) };
        }
    }
}

impl Contents {
    /// Integers and addresses, or large counts, in the order of the constructor's arguments.
    pub fn numbers(&self) -> Vec<i64> {
        if self.large_counts.is_empty() {
            self.integers.iter().chain(&self.addresses).copied().collect()
        } else {
            self.large_counts.clone()
        }
    }
}

type GetEnvelopeLarge =
    unsafe extern "C" fn(Handle, *mut i64, *mut i64, *mut i64, *mut i64, *mut c_int) -> c_int;
type GetContentsLarge = unsafe extern "C" fn(
    Handle,
    i64,
    i64,
    i64,
    i64,
    *mut c_int,
    *mut isize,
    *mut i64,
    *mut c_void,
) -> c_int;

static GET_ENVELOPE_LARGE: Symbol = Symbol::new("PMPI_Type_get_envelope_c\0");
static GET_CONTENTS_LARGE: Symbol = Symbol::new("PMPI_Type_get_contents_c\0");

/// The constructor of a datatype.
pub fn envelope(datatype: Handle) -> Result<Envelope, MpiError> {
    let (integers, addresses, large_counts, datatypes, combiner);
    if let Some(address) = GET_ENVELOPE_LARGE.find() {
        let mut counts = [0i64; 4];
        let mut number = 0;
        let [a, b, c, d] = &mut counts;
        // SAFETY: the function of this name has this type in MPI 4.
        check(unsafe {
            let function = std::mem::transmute::<*mut c_void, GetEnvelopeLarge>(address);
            function(datatype, a, b, c, d, &mut number)
        })?;
        [integers, addresses, large_counts, datatypes] = counts;
        combiner = number;
    } else {
        let (mut a, mut b, mut c, mut number) = (0, 0, 0, 0);
        // SAFETY: the results have the types of MPI.
        check(unsafe {
            functions::type_get_envelope(datatype, &mut a, &mut b, &mut c, &mut number)
        })?;
        (integers, addresses, large_counts, datatypes) = (a.into(), b.into(), 0, c.into());
        combiner = number;
    }
    Ok(Envelope {
        integers: natural(integers)? as usize,
        addresses: natural(addresses)? as usize,
        large_counts: natural(large_counts)? as usize,
        datatypes: natural(datatypes)? as usize,
        combiner: combiner_of(combiner)?,
    })
}

/// The numbers of Open MPI begin at 0, those of MPICH at 1, and a few differ.
fn combiner_of(number: c_int) -> Result<Combiner, MpiError> {
    use Combiner::*;
    const NUMBERS: [Combiner; 19] = [
        Named,
        Dup,
        Contiguous,
        Vector,
        HVector,
        HVector,
        Indexed,
        HIndexed,
        HIndexed,
        IndexedBlock,
        Struct,
        Struct,
        Subarray,
        Darray,
        Named,
        Named,
        Named,
        Resized,
        HIndexedBlock,
    ];
    let first = match library().flavour {
        Flavour::OpenMpi => 0,
        Flavour::Mpich => 1,
    };
    let index = usize::try_from(number - first).map_err(|_| unsupported())?;
    NUMBERS.get(index).copied().ok_or(unsupported())
}

/// The arguments of a datatype's constructor.
pub fn contents(datatype: Handle, envelope: &Envelope) -> Result<Contents, MpiError> {
    let mut integers: Vec<c_int> = vec![0; envelope.integers];
    let mut addresses: Vec<isize> = vec![0; envelope.addresses];
    let mut large_counts = vec![0i64; envelope.large_counts];
    let width = library().flavour.width();
    let mut handles = vec![0u8; width * envelope.datatypes];
    // SAFETY: the buffers have the lengths that the calls are told, in the library's types.
    check(unsafe {
        match GET_CONTENTS_LARGE.find() {
            Some(address) if envelope.large_counts > 0 => {
                let function = std::mem::transmute::<*mut c_void, GetContentsLarge>(address);
                function(
                    datatype,
                    integers.len() as i64,
                    addresses.len() as i64,
                    large_counts.len() as i64,
                    envelope.datatypes as i64,
                    integers.as_mut_ptr(),
                    addresses.as_mut_ptr(),
                    large_counts.as_mut_ptr(),
                    handles.as_mut_ptr().cast(),
                )
            }
            Some(_) | None => functions::type_get_contents(
                datatype,
                integers.len() as c_int,
                addresses.len() as c_int,
                envelope.datatypes as c_int,
                integers.as_mut_ptr(),
                addresses.as_mut_ptr(),
                handles.as_mut_ptr().cast(),
            ),
        }
    })?;
    let mut datatypes = Vec::with_capacity(envelope.datatypes);
    for bytes in handles.chunks_exact(width) {
        let mut word = [0u8; 8];
        word[..width].copy_from_slice(bytes);
        let handle = u64::from_le_bytes(word) as Handle;
        // `MPI_Type_free` of a type made by `MPI_Type_create_f90_real` is an error, as it is for a
        // predefined one.
        datatypes.push(Derived { handle, combiner: self::envelope(handle)?.combiner });
    }
    Ok(Contents {
        integers: integers.into_iter().map(i64::from).collect(),
        addresses: addresses.into_iter().map(|address| address as i64).collect(),
        large_counts,
        datatypes,
    })
}

/// Refusal of a datatype that has no tree.
pub fn unsupported() -> MpiError {
    MpiError(library().error_argument)
}

/// A number that is not negative.
pub fn natural(number: i64) -> Result<u64, MpiError> {
    u64::try_from(number).map_err(|_| unsupported())
}
