"""Why a change that somebody asked for is not made: the word that decisions here and in the libraries share."""

from regnum_model.rejection import Rejection

__all__ = ["Rejection"]
