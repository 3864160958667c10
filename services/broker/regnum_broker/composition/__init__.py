"""How a broker is put together: what its parts are made of, in the order in which ``broker`` starts them."""
