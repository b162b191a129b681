//! Who holds which latent page, recurrent slot and checkpoint.
