package bcx

const defaultNetwork = "tcp"
