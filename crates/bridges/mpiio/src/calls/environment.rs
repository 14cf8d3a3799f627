//! The end of MPI.

#![allow(non_snake_case, reason = "names of MPI")]

use super::intercept;
use crate::statistics;

intercept! {
    MPI_Finalize PMPI_Finalize () = statistics::before_finalize();
}
